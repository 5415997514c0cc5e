//! Texts of others, made fit to be shown: a plugin prints what it likes.

use crate::finding::CallRecord;

/// The bytes of an output that a report for people shows; the JSON report has all of it.
pub(super) const SHOWN_BYTES: usize = 4096;

/// The text with its control characters and those that turn the direction of writing around shown as signs. Lines stay
/// lines, tabs stay tabs.
pub(super) fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        match c {
            '\n' | '\t' => shown.push(c),
            '\0'..='\x1f' => shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or(c)),
            '\x7f' => shown.push('\u{2421}'),
            _ if is_harmful(c) => shown.extend(c.escape_unicode()),
            _ => shown.push(c),
        }
        shown
    })
}

/// C1 controls, marks and overrides of direction, line ends that are none of ours, and what XML has no place for.
fn is_harmful(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// The same on one line.
pub(super) fn one_line(text: &str) -> String {
    visible(text).replace('\n', "\u{240a}").replace('\t', " ")
}

/// The text, or its start and end with a note of what is missing between.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(limit / 4 * 3);
    let tail = text.ceil_char_boundary(text.len() - limit / 4);
    let (start, left_out, end) = (&text[..head], tail - head, &text[tail..]);
    format!("{start}\n[... {left_out} of {} bytes left out here; the JSON report has them ...]\n{end}", text.len())
}

/// A text on one line, or what fits of its start and, twice as much, of its end, where a plugin names the cause.
pub(super) fn shortened_to_one_line(text: &str, limit: usize) -> String {
    let line = one_line(text);
    let count = line.chars().count();
    if count <= limit {
        return line;
    }
    let (start, end): (String, String) =
        (line.chars().take(limit / 3).collect(), line.chars().skip(count - limit / 3 * 2).collect());
    format!("{start} [...] {end}")
}

/// A plugin's output as reports show it: shortened, and with no invisible character.
pub(super) fn output(text: &str) -> String {
    visible(&shortened(text, SHOWN_BYTES))
}

/// The call as a command for any POSIX shell in which no character is invisible.
///
/// A control character of an argument stands in single quotes (see [`CallRecord::command_line`]); the quotes are closed
/// around a substitution that makes it.
fn command(call: &CallRecord) -> String {
    let line = call.command_line();
    let is_plain = |c: char| c == '\n' || c == '\t' || visible(c.encode_utf8(&mut [0; 4])) == c.to_string();
    if line.chars().all(is_plain) {
        return line;
    }
    line.chars().fold(String::with_capacity(line.len()), |mut shown, c| {
        if is_plain(c) {
            shown.push(c);
        } else {
            let octal: String = c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("\\{byte:03o}")).collect();
            shown.push_str(&format!("'\"$(printf '{octal}')\"'"));
        }
        shown
    })
}

/// The calls as text for a shell: what was done before each, the call itself, and as remarks what came of it.
pub(super) fn transcript(calls: &[CallRecord]) -> Vec<String> {
    let remark = |name: &str, printed: &str| -> Vec<String> {
        output(printed.trim_end()).lines().map(|line| format!("#   {name}{line}")).collect()
    };
    let of = |(number, call): (usize, &CallRecord)| {
        let head = format!("# {}. {}: {}", number + 1, one_line(verb(call)), ending(call));
        let command = shortened(&command(call), 4 * SHOWN_BYTES);
        let before = call.before.iter().map(|step| visible(step));
        let printed = [remark("", &call.stdout), remark("stderr: ", &call.stderr)].concat();
        before.chain([head, command]).chain(printed).collect::<Vec<_>>()
    };
    calls.iter().enumerate().flat_map(of).collect()
}

fn verb(call: &CallRecord) -> &str {
    if !call.arguments.is_empty() {
        return call.executable.rsplit('/').next().unwrap_or_default(); // a runtime
    }
    let verb = call.environment.iter().find(|(name, _)| name == "CNI_COMMAND");
    verb.map_or("no CNI_COMMAND", |(_, verb)| verb)
}

fn ending(call: &CallRecord) -> String {
    let ended = match call.exit {
        None => "did not end".to_owned(),
        Some(status @ 129..=192) => format!("ended by signal {}", status - 128),
        Some(status) => format!("status {status}"),
    };
    format!("{ended}, {} ms", call.milliseconds)
}

pub(super) fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::command;
    use crate::finding::CallRecord;

    #[test]
    fn a_shell_runs_the_command_as_it_was() {
        let stdin = "{\"a\":\"it's \x1b[1m\u{202e}\r\n\u{1}\"}".to_owned();
        let call = CallRecord { executable: "/bin/cat".to_owned(), stdin: stdin.clone(), ..CallRecord::default() };
        let command = command(&call);
        assert!(!command.contains(['\x1b', '\r', '\u{202e}']), "{command}");
        let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), stdin);
    }
}
