use fairlift::config::{Listener, Tls};

use super::*;

fn config(flags: &ServeArgs) -> Config {
    prepare(flags, Vec::new()).unwrap().config
}

fn listening(address: &str) -> ServeArgs {
    ServeArgs { listen: vec![place::parse_place(address).unwrap()], ..ServeArgs::default() }
}

#[test]
fn serve_alone_is_a_ram_disk_and_says_what_to_try() {
    let config = config(&listening("unix:/run/a b.sock"));
    let announced = announcement(&config, &["unix:/run/a b.sock".into()], &["unix:/run/c.sock"], true);
    let mut lines = announced.lines();
    assert_eq!(lines.next(), Some("serving ram (RAM, 1 GiB) at nbd+unix:///ram?socket=/run/a%20b.sock"));
    assert_eq!(lines.next(), Some("control at unix:/run/c.sock"));
    assert_eq!(lines.next(), Some("try in another terminal:"));
    assert_eq!(lines.next(), Some("  nbdinfo 'nbd+unix:///ram?socket=/run/a%20b.sock'"));
    assert_eq!(
        announcement(&config, &[], &[], false).lines().count(),
        1,
        "who named an export knows what to do with it"
    );
}

#[test]
fn a_port_that_the_kernel_chose_is_announced() {
    let config = config(&listening("tcp:127.0.0.1:0"));
    let announced = announcement(&config, &["tcp:127.0.0.1:40123".into()], &[], false);
    assert_eq!(announced, "serving ram (RAM, 1 GiB) at nbd://127.0.0.1:40123/ram\n");
}

#[test]
fn a_socket_of_the_service_manager_is_announced_where_it_listens() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut config = config(&listening("unix:/x"));
    let address = Address::Inherited(std::sync::Arc::new(socket.into()));
    config.listeners = vec![Listener::new(address, Tls::Off)];
    let announced = announcement(&config, &["socket 3 from the service manager".into()], &[], false);
    assert_eq!(announced, format!("serving ram (RAM, 1 GiB) at nbd://127.0.0.1:{port}/ram\n"));
}

#[test]
fn a_check_says_what_there_is() {
    let (in_force, _) = Server::check(&config(&listening("unix:/x"))).unwrap();
    assert_eq!(summary(&in_force, 0), "1 export, 1 disk, 1 group, 1 listener");
}
