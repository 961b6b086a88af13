//! The program `fairlift`.

fn main() -> std::process::ExitCode {
    fairlift_cli::run()
}
