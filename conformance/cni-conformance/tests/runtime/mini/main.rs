//! A runtime in small, with a switch for each way to be wrong: `MINI_FAULT` names the one. Without it the runtime is
//! honest, and has to pass every rule; with it, it has to be caught.
//!
//! `mini VERB NETWORK CONTAINER IFNAME NETNS ARGS CAPABILITIES KEEP...`, with `NETCONFPATH` and `CNI_PATH`.

mod call;
mod list;
mod state;

use list::List;
use serde_json::Value;
use state::State;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Errors are reported in one line.
type Result<T> = std::result::Result<T, String>;

/// An operation of the runtime, and its arguments.
#[derive(Clone)]
struct Request {
    verb: String,
    network: String,
    container: String,
    ifname: String,
    netns: String,
    args: String,
    capabilities: Value,
    keep: Vec<String>,
}

#[expect(clippy::disallowed_methods, reason = "the switch of a runtime that is only here to be caught")]
fn is(fault: &str) -> bool {
    std::env::var("MINI_FAULT").is_ok_and(|set| set == fault)
}

/// No fault: DEL comes before ADD, and twice; an ADD that failed is tried again; keys of its own and an empty `runtimeConfig` are in each
/// config.
const REPEATS: &str = "repeats";

/// A fault with lists of versions up to 0.4.0.
fn is_old(fault: &str, list: &List) -> bool {
    is(fault) && !list.is_from("1.0.0")
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |index: usize| words.get(index).cloned().unwrap_or_default();
    let request = Request {
        verb: word(0),
        network: word(1),
        container: word(2),
        ifname: word(3),
        netns: word(4),
        args: word(5),
        capabilities: serde_json::from_str(&word(6)).unwrap_or_default(),
        keep: words.iter().skip(7).cloned().collect(),
    };
    match run(&request) {
        Ok(text) => {
            write!(std::io::stdout(), "{text}").ok();
            ExitCode::SUCCESS
        }
        Err(error) => {
            let hidden = is("error-is-reported") && request.verb == "ADD";
            writeln!(std::io::stderr(), "mini: {}", if hidden { "it failed" } else { &error }).ok();
            ExitCode::FAILURE
        }
    }
}

fn run(request: &Request) -> Result<String> {
    let (_gc, _container) = locks(request)?;
    let state = State::of(request);
    let list = match list::find(&request.network) {
        Err(_) if request.verb == "DEL" && !is("del-without-config") => state.list()?,
        found => found?,
    };
    check_names(request, &list)?;
    match request.verb.as_str() {
        "ADD" => add(request, &list, &state),
        "CHECK" => check(request, &list, &state),
        "DEL" => del(request, &list, &state),
        "GC" => gc(request, &list),
        "STATUS" => status(request, &list),
        other => Err(format!("there is no verb {other}")),
    }
}

/// GC excludes all else, and a container's operations exclude each other.
fn locks(request: &Request) -> Result<(Option<File>, Option<File>)> {
    let as_text = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(state::FOLDER).map_err(as_text)?;
    let file = |name: &str| File::create(Path::new(state::FOLDER).join(name)).map_err(as_text);
    let all = file("lock")?;
    match request.verb.as_str() {
        "GC" if is("gc-alone") => return Ok((None, None)),
        "STATUS" => return Ok((None, None)),
        "GC" => all.lock().map_err(as_text)?,
        _ if is("containers-in-parallel") => all.lock().map_err(as_text)?,
        _ => all.lock_shared().map_err(as_text)?,
    }
    let own = match request.verb == "GC" || is("one-at-a-time") || request.container.contains('/') {
        true => None,
        false => Some(file(&format!("lock-{}", request.container))?),
    };
    own.as_ref().map_or(Ok(()), File::lock).map_err(as_text)?;
    Ok((Some(all), own))
}

fn check_names(request: &Request, list: &List) -> Result<()> {
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    };
    let ifname = &request.ifname;
    let is_ifname = (1..=15).contains(&ifname.len())
        && ![".", ".."].contains(&ifname.as_str())
        && !ifname.contains(|c: char| "/:".contains(c) || c.is_whitespace());
    let is_good = (is_name(&request.network) || is("names-are-checked"))
        && (is_name(&request.container) || is("container-ids-are-checked"));
    if is_good && (is_ifname || is("ifnames-are-checked") || is_old("ifnames-in-0.4.0", list)) {
        Ok(())
    } else {
        Err("a name is forbidden".to_owned())
    }
}

fn add(request: &Request, list: &List, state: &State) -> Result<String> {
    if state.result().is_some() && !is("no-second-add") && !is_old("no-second-add-in-0.4.0", list) {
        return Err("it is added already".to_owned());
    }
    if is(REPEATS) {
        call_del(request, list, None).ok();
        return attach(request, list, state).or_else(|_first| attach(request, list, state));
    }
    attach(request, list, state)
}

/// DEL of each plugin, from the last to the first.
fn call_del(request: &Request, list: &List, result: Option<&Value>) -> Result<()> {
    let of_del = Request { verb: "DEL".to_owned(), ..request.clone() };
    list.plugins.iter().rev().try_for_each(|plugin| call::plugin(&of_del, list, plugin, result).map(drop))
}

fn attach(request: &Request, list: &List, state: &State) -> Result<String> {
    state.write(list, None)?;
    let (mut first, mut last, mut failure) = (None, None, None);
    let mut plugins = list.plugins.clone();
    if is("add-in-order") || is_old("order-in-0.4.0", list) {
        plugins.reverse();
    }
    for (index, plugin) in plugins.iter().enumerate() {
        let mut previous: Option<Value> = last.clone();
        if is("result-of-the-one-before") {
            previous.iter_mut().filter_map(Value::as_object_mut).for_each(|object| drop(object.remove("dns")));
        }
        if is("no-first-result") && index == 0 {
            previous = Some(serde_json::json!({}));
        }
        match call::plugin(request, list, plugin, previous.as_ref()) {
            Ok(result) => last = Some(result),
            Err(error) if is("add-stops-at-error") || is_old("ends-at-error-in-0.4.0", list) => {
                failure = failure.or(Some(error))
            }
            Err(error) => {
                if is("del-after-failed-add") {
                    state.forget();
                }
                return Err(error);
            }
        }
        first = first.or(last.clone());
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let result = last.unwrap_or_default();
    state.write(list, Some(&result))?;
    let printed = if is("add-gives-last-result") { first.unwrap_or_default() } else { result };
    Ok(printed.to_string())
}

fn check(request: &Request, list: &List, state: &State) -> Result<String> {
    if !list.is_from("0.4.0") && !is("no-check-before-0.4.0") {
        return Err(format!("version {} has no CHECK", list.version));
    }
    if list.flag("disableCheck") && !is("check-disabled") {
        return Ok(String::new());
    }
    let mut result = state.result();
    if result.is_none() && !is("no-check-without-add") {
        return Err("it is not added".to_owned());
    }
    if is("check-has-result") {
        result.iter_mut().filter_map(Value::as_object_mut).for_each(|object| drop(object.remove("routes")));
    }
    let mut plugins = list.plugins.clone();
    if is("check-in-order") {
        plugins.reverse();
    }
    for plugin in &plugins {
        match call::plugin(request, list, plugin, result.as_ref()) {
            Err(_) if is("check-fails") => {}
            other => drop(other?),
        }
    }
    Ok(String::new())
}

fn del(request: &Request, list: &List, state: &State) -> Result<String> {
    if is("del-after-failed-add") && !state.exists() {
        return Ok(String::new());
    }
    if is("del-twice") && !state.exists() {
        return Err("it is not added".to_owned());
    }
    if is("del-after-a-full-disk") && state.is_cut_off() {
        return Err("what is kept of it cannot be read".to_owned());
    }
    if is("del-without-namespace") && !Path::new(&request.netns).exists() {
        return Err(format!("there is no {}", request.netns));
    }
    let result = state.result().filter(|_| list.is_from("0.4.0"));
    if is("del-again-after-failed-del") {
        state.forget();
    }
    let mut plugins = list.plugins.clone();
    if is_old("del-of-all-in-0.4.0", list) && state.result().is_none() {
        plugins.truncate(2);
    }
    if !is("del-in-reverse") {
        plugins.reverse();
    }
    let mut failure = None;
    for (index, plugin) in plugins.iter().enumerate() {
        let result = result.as_ref().filter(|_| index == 0 || !is("del-has-result"));
        if is("del-is-no-gc") && index > 0 && list.is_from("1.1.0") {
            call::plugin(&Request { verb: "GC".to_owned(), ..request.clone() }, list, plugin, None)?;
            continue;
        }
        match call::plugin(request, list, plugin, result) {
            Err(error) if is("del-stops-at-error") => failure = Some(error),
            other => drop(other?),
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    if is(REPEATS) {
        call_del(request, list, None)?;
    }
    if !is("result-is-forgotten") && !is_old("result-is-forgotten-in-0.4.0", list) {
        state.forget();
    }
    Ok(String::new())
}

fn gc(request: &Request, list: &List) -> Result<String> {
    if list.flag("disableGC") && !is("gc-disabled") {
        return Ok(String::new());
    }
    if !list.is_from("1.1.0") && !is("no-gc-before-1.1.0") {
        return Ok(String::new());
    }
    let mut errors = Vec::new();
    if is("gc-is-no-del") {
        call_del(request, list, None)?;
    }
    for plugin in &list.plugins {
        match call::plugin(request, list, plugin, None) {
            Err(error) if is("gc-goes-on-after-error") => return Err(error),
            Err(error) => errors.push(error),
            Ok(_) => {}
        }
    }
    if errors.is_empty() { Ok(String::new()) } else { Err(errors.join("; ")) }
}

fn status(request: &Request, list: &List) -> Result<String> {
    if !list.is_from("1.1.0") && !is("no-status-before-1.1.0") {
        return Ok(String::new());
    }
    let first = if is("status-asks-each") { list.plugins.len() - 1 } else { 0 };
    for plugin in list.plugins.iter().skip(first) {
        match call::plugin(request, list, plugin, None) {
            Err(_) if is("status-fails") => {}
            other => drop(other?),
        }
    }
    Ok(String::new())
}
