//! The client's side of the control socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use fairlift::config::Address;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::control::{parse_place, token};
use crate::syntax::{certificates, place};

#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// The server's control address, as in `fairlift serve --control` [default: that of the server which listens at the usual
    /// place]
    #[arg(long, value_name = "ADDRESS", env = "FAIRLIFT_CONTROL", global = true)]
    pub(crate) control: Option<String>,

    /// Print the server's answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Where the server is, and how to be let in.
pub(crate) struct Server {
    pub(super) address: Address,
    /// For people.
    pub(super) shown: String,
    token: Option<String>,
    /// The certificate for a server that wants one, and the client's name in it.
    tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

/// How long the successor of a server is looked for. Chosen: one that takes over answers in a tenth of it.
const SUCCESSOR: Duration = Duration::from_secs(3);
/// How often.
const AGAIN: Duration = Duration::from_millis(100);

impl Server {
    /// The server that was named, or the one that is usually there.
    pub(crate) fn find(at: &At) -> Result<Self, String> {
        let Some(text) = &at.control else {
            let address = Address::Unix(usual()?);
            return Ok(Self { shown: place::show(&address), address, token: None, tls: None });
        };
        let named = || {
            let place = parse_place(text)?;
            let token = place.token.as_deref().map(token).transpose()?;
            let tls = match &place.certificates {
                None => None,
                Some(dir) => {
                    let name = ServerName::try_from(place.host().to_owned());
                    let name = name.map_err(|_| format!("\"{}\" is not a host's name", place.host()))?;
                    Some((certificates::load_client(dir, true)?, name))
                }
            };
            Ok(Self { shown: place::show(&place.address), address: place.address, token, tls })
        };
        named().map_err(|why: String| format!("--control {text}: {why}"))
    }

    /// The answer, and the version of the settings that it is about.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: Option<u64>,
    ) -> Result<(T, Option<u64>), String> {
        run(async {
            let response = self.send(method, path, body, version).await?;
            let version =
                response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()?.trim_matches('"').parse().ok());
            Ok((self.read(response).await?, version))
        })
    }

    /// Asks for so long at most.
    pub(crate) fn ask_within(&self, time: Duration, path: &str) -> Option<Value> {
        let answer = async { self.read(self.send(Method::GET, path, None, None).await?).await };
        run(async { tokio::time::timeout(time, answer).await.unwrap_or_else(|_| Err(String::new())) }).ok()
    }

    /// Asks, and hands on the bytes of the answer as they come, as long as `take` wants more.
    pub(crate) fn fetch(&self, path: &str, mut take: impl FnMut(&[u8]) -> Result<bool, String>) -> Result<(), String> {
        run(async {
            let mut body = self.send(Method::GET, path, None, None).await?.into_body();
            take(&[])?; // it answers
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame.map_err(|error| self.lost(&error))?.into_data()
                    && !take(&bytes)?
                {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Asks, and shows the lines of the answer as they come, as long as `line` wants more. An answer that breaks off is that of a server which was
    /// killed, or from which another one has taken over: that one is asked for `path` as it is by then.
    pub(crate) fn follow(&self, path: impl Fn() -> String, mut line: impl FnMut(&str) -> bool) -> Result<(), String> {
        let mut until = Instant::now();
        loop {
            let (mut text, mut has_answered) = (Vec::new(), false);
            let ended = self.fetch(&path(), |bytes| {
                has_answered = true;
                text.extend_from_slice(bytes);
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let whole: Vec<u8> = text.drain(..=end).collect();
                    if !line(String::from_utf8_lossy(&whole).trim_end()) {
                        return Ok(false);
                    }
                }
                Ok(true)
            });
            if has_answered {
                until = Instant::now() + SUCCESSOR;
            }
            match ended {
                Err(_) if Instant::now() < until => std::thread::sleep(AGAIN),
                ended => return ended,
            }
        }
    }

    /// Asks, and returns the answer before it is read, unless that is a refusal.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: Option<u64>,
    ) -> Result<Response<Incoming>, String> {
        let none = |error: std::io::Error| format!("no server answers at {}: {error}{}", self.shown, hint(&error));
        let host = match &self.address {
            Address::Tcp(address) => address.to_string(),
            _ => "localhost".into(),
        };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(version) = version {
            request = request.header(header::IF_MATCH, format!("\"{version}\""));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| format!("{path}: {error}"))?;
        let response = match &self.address {
            Address::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(none)?;
                over(TokioIo::new(stream), request).await
            }
            Address::Tcp(address) => {
                let stream = tokio::net::TcpStream::connect(address).await.map_err(none)?;
                match self.tls.clone() {
                    None => over(TokioIo::new(stream), request).await,
                    Some((tls, name)) => {
                        let stream = tokio_rustls::TlsConnector::from(tls).connect(name, stream).await;
                        let stream = stream.map_err(|error| format!("{}: {error}", self.shown))?;
                        over(TokioIo::new(stream), request).await
                    }
                }
            }
            Address::Inherited(_) => return Err("an inherited socket has no address".into()),
        };
        let response = response.map_err(|error| self.lost(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let value: Value = self.read(response).await?;
        Err(value["error"].as_str().map_or_else(|| format!("{}: {status}", self.shown), str::to_owned))
    }

    async fn read<T: DeserializeOwned>(&self, response: Response<Incoming>) -> Result<T, String> {
        let bytes = response.into_body().collect().await.map_err(|error| self.lost(&error))?.to_bytes();
        serde_json::from_slice(&bytes).map_err(|error| {
            format!("{}: the answer is not JSON ({error}): is this Fairlift's control address?", self.shown)
        })
    }

    fn lost(&self, error: &hyper::Error) -> String {
        if error.is_parse() {
            let beside = match &self.address {
                Address::Unix(path) => {
                    format!("; the one beside it is unix:{}", path.with_extension("control.sock").display())
                }
                _ => String::new(),
            };
            return format!("{}: that is not a control socket{beside}", self.shown);
        }
        format!("{}: the connection to the server was lost: {error}", self.shown)
    }
}

async fn over<I>(io: I, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut send, connection) = hyper::client::conn::http1::handshake(io).await?;
    tokio::spawn(connection);
    send.send_request(request).await
}

fn run<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

fn hint(error: &std::io::Error) -> &'static str {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return "; the socket's mode lets only its owner in (sudo, or serve --control unix:PATH,mode=0660,group=NAME)";
    }
    "; `fairlift serve` starts one, and with --listen unix:NAME.sock it answers at --control unix:NAME.control.sock (or FAIRLIFT_CONTROL)"
}

/// The control socket of the service that this process is of (systemd sets its directory, for `ExecReload=` too), of `fairlift.service`, or of a
/// server that listens at the usual place.
fn usual() -> Result<PathBuf, String> {
    let of_this = std::env::var_os("RUNTIME_DIRECTORY").map(|dir| Path::new(&dir).join("control.sock"));
    if let Some(place) = of_this.filter(|place| place.exists()) {
        return Ok(place);
    }
    let service = Path::new("/run/fairlift/control.sock");
    let own = place::default_socket()?.with_extension("control.sock");
    Ok(if !own.exists() && service.exists() { service.to_owned() } else { own })
}
