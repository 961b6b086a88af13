//! `fairlift top`: tenants as they are now, the one that has most of the disk first; sorted and filtered by keys.
//!
//! One thread asks the server over and over, another one asks why where that is wanted; the main thread waits for keys and draws.

pub(super) mod rows;
mod screen;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use hyper::Method;
use ratatui::crossterm::event::{self, Event};
use serde_json::Value;

use super::args::TopArgs;
use super::client::Server;
use super::{encoded, tables};
use crate::terminal::stop::stop_on_signal;
use screen::{Does, Top};

/// How soon a person sees that a key was pressed or an answer has come.
const PATIENCE: Duration = Duration::from_millis(50);
/// The first look is short, so that there is something to see at once.
const FIRST: f64 = 0.2;

/// The answers that the asking threads have received.
enum Heard {
    Status(Result<Value, String>),
    Why(String),
}

pub(super) fn once(args: &TopArgs) -> Result<(String, Value), String> {
    let value = look(&Server::find(&args.at)?, args.seconds)?;
    let mut top = Top::new(args.sort, args.filter.clone());
    top.take(value.clone());
    Ok((top.text(), value))
}

/// Shows what the server does until a key or a signal ends it.
pub(super) fn watch(args: &TopArgs) -> Result<(), String> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err("there is no terminal to show it on; `fairlift top --once` prints".into());
    }
    let server = Arc::new(Server::find(&args.at)?);
    let mut top = Top::new(args.sort, args.filter.clone());
    top.take(look(&server, FIRST)?);
    let stop = stop_on_signal().map_err(|error| error.to_string())?;
    let (say, heard) = channel();
    let (asking, answers, seconds) = (Arc::clone(&server), say.clone(), args.seconds);
    std::thread::spawn(move || {
        loop {
            // If another server has taken over meanwhile, it answers.
            let answer = look(&asking, seconds).or_else(|_| look(&asking, FIRST));
            let pause = answer.is_err();
            if answers.send(Heard::Status(answer)).is_err() {
                return; // nobody watches any more
            }
            if pause {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    });
    let mut terminal = ratatui::try_init().map_err(|error| error.to_string())?;
    let mut show = || -> std::io::Result<()> {
        while stop.signal().is_none() {
            terminal.draw(|frame| top.draw(frame))?;
            if event::poll(PATIENCE)?
                && let Event::Key(key) = event::read()?
            {
                match top.key(key) {
                    Does::Ignore => {}
                    Does::Quit => return Ok(()),
                    Does::Why(export) => ask_why(&server, export, &say),
                }
            }
            for heard in heard.try_iter() {
                match heard {
                    Heard::Status(Ok(value)) => top.take(value),
                    Heard::Status(Err(why)) => top.trouble = Some(why),
                    Heard::Why(text) => top.why = Some(text),
                }
            }
        }
        Ok(())
    };
    let shown = show();
    ratatui::restore();
    shown.map_err(|error| error.to_string())
}

fn look(server: &Server, seconds: f64) -> Result<Value, String> {
    Ok(server.ask(Method::GET, &format!("/v1/status?seconds={seconds}"), None, None)?.0)
}

fn ask_why(server: &Arc<Server>, export: String, say: &Sender<Heard>) {
    let (server, say) = (Arc::clone(server), say.clone());
    std::thread::spawn(move || {
        let answer = server.ask(Method::GET, &format!("/v1/why/{}", encoded(&export)), None, None);
        let text = answer.map_or_else(|why| why, |(value, _)| tables::why(&value));
        let _ = say.send(Heard::Why(text)); // nobody may watch any more
    });
}
