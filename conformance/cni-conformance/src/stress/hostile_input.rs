//! Inputs that no honest runtime would send. Each has a name by which a finding reports it.

use serde_json::{Value, json};

/// A value in the place of one of another type.
#[derive(Debug, Clone)]
pub(crate) struct Input<T> {
    pub(crate) name: String,
    pub(crate) value: T,
}

impl<T> Input<T> {
    pub(crate) fn new(name: impl Into<String>, value: T) -> Self {
        Self { name: name.into(), value }
    }
}

/// Bytes of the largest inputs.
const HUGE: usize = 64 << 20;
/// The depth of the most deeply nested inputs.
const DEEP: usize = 100_000;

/// JSON texts of the wrong type or of hostile content, for any place.
fn wrong_values() -> Vec<Input<String>> {
    let json = |text: &str| Input::new(text, text.to_owned());
    let text = |name: &str, value: &str| Input::new(name, json!(value).to_string());
    vec![
        json("null"),
        json("-1"),
        json("1e400"),
        json("18446744073709551616"),
        json("true"),
        json("[]"),
        json("{}"),
        json(r#""""#),
        json(r#""../../x""#),
        json(r#""/""#),
        json(r#""a\nb""#),
        json(r#""\u0000""#),
        json(r#""%s%n$(touch /run/owned);`id`|'""#),
        json(r#""-j""#),
        text("4096 letters", &"x".repeat(4096)),
    ]
}

/// Each place of a value, as a JSON pointer, containers before what is in them.
pub(crate) fn places(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, String::new(), &mut found);
    found
}

fn walk(value: &Value, place: String, found: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(object) => {
            object.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(list) => list.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    if !place.is_empty() {
        found.push(place.clone());
    }
    for (key, value) in below {
        walk(value, format!("{place}/{key}"), found);
    }
}

/// A config with each wrong value in each place below `root`. What no JSON value holds is written into its text.
pub(crate) fn wrong_types(config: &Value, root: &str) -> Vec<Input<Vec<u8>>> {
    const MARK: &str = "@here@";
    let part = config.pointer(root).cloned().unwrap_or_default();
    let mut places: Vec<_> = places(&part).into_iter().map(|place| format!("{root}{place}")).collect();
    if !root.is_empty() {
        places.insert(0, root.to_owned());
    }
    let mut inputs = Vec::new();
    for place in places {
        let mut marked = config.clone();
        if let Some(value) = marked.pointer_mut(&place) {
            *value = json!(MARK);
        }
        let marked = marked.to_string();
        for wrong in wrong_values() {
            let text = marked.replacen(&format!("\"{MARK}\""), &wrong.value, 1);
            inputs.push(Input::new(format!("{place} = {}", wrong.name), text.into_bytes()));
        }
    }
    inputs
}

pub(crate) fn strange_texts(config: &Value) -> Vec<Input<Vec<u8>>> {
    let good = config.to_string();
    let mut inputs = Vec::new();
    let mut input = |name: String, value: Vec<u8>| inputs.push(Input::new(name, value));
    // Around each power of two, and at the ends.
    let lengths = (0..20).map(|bit| 1_usize << bit).flat_map(|length| [length - 1, length]);
    let mut lengths: Vec<_> = lengths.chain((1..4).map(|less| good.len() - less)).filter(|l| *l < good.len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    for length in lengths {
        input(
            format!("the first {length} bytes of the config"),
            good.as_bytes().get(..length).unwrap_or_default().to_vec(),
        );
    }
    let inner = good.get(1..).unwrap_or_default();
    for (name, start) in [
        ("invalid UTF-8 in a key", &b"{\"a\xff\":1,"[..]),
        ("invalid UTF-8 in a value", b"{\"a\":\"\xc3\x28\xed\xa0\x80\","),
        ("invalid UTF-8 in the network's name", b"{\"name\":\"a\xffb\","),
        ("a zero byte in a text", b"{\"a\":\"\0\","),
        ("a zero byte between tokens", b"{\0"),
        ("a byte order mark", b"\xef\xbb\xbf{"),
        ("a comment", b"/* */{"),
        ("a key twice", b"{\"name\":\"other\",\"type\":\"other\",\"cniVersion\":\"9.9.9\","),
        ("an empty key", b"{\"\":1,"),
        ("keys that differ in case only", b"{\"NAME\":\"../x\",\"CniVersion\":7,"),
    ] {
        input(name.to_owned(), [start, inner.as_bytes()].concat());
    }
    for (name, text) in [("two configs", format!("{good}{good}")), ("an array of configs", format!("[{good}]"))] {
        input(name.to_owned(), text.into_bytes());
    }
    for text in
        ["null", "7", "\"text\"", "[]", "{}", " ", "\0", "{\"name\":{}}", "{\"plugins\":[]}", "nul", "{]", "\u{feff}"]
    {
        input(format!("{text:?} and nothing else"), text.as_bytes().to_vec());
    }
    inputs
}

/// Makes an input when it is needed: all large ones at once would be too much.
pub(crate) type Maker = Box<dyn Fn() -> Vec<u8>>;

/// Configs that are deep or large.
pub(crate) fn huge_texts(config: &Value) -> Vec<Input<Maker>> {
    let good = config.to_string();
    let inner = good.get(1..).unwrap_or_default().to_owned();
    let with = move |start: Box<dyn Fn() -> String>| -> Maker {
        let inner = inner.clone();
        Box::new(move || format!("{{{},{inner}", start()).into_bytes())
    };
    vec![
        Input::new(
            "100000 lists in each other",
            with(Box::new(|| format!("\"a\":{}{}", "[".repeat(DEEP), "]".repeat(DEEP)))),
        ),
        Input::new(
            "100000 objects in each other",
            with(Box::new(|| format!("\"a\":{}1{}", "{\"b\":".repeat(DEEP), "}".repeat(DEEP)))),
        ),
        Input::new(
            "100000 lists in each other as prevResult",
            with(Box::new(|| format!("\"prevResult\":{}{}", "[".repeat(DEEP), "]".repeat(DEEP)))),
        ),
        Input::new(
            "100000 lists in each other, never closed",
            with(Box::new(|| format!("\"a\":{}", "[".repeat(DEEP)))),
        ),
        Input::new("a text of 64 MiB", with(Box::new(|| format!("\"a\":\"{}\"", "x".repeat(HUGE))))),
        Input::new("a network's name of 64 MiB", with(Box::new(|| format!("\"name\":\"{}\"", "x".repeat(HUGE))))),
        Input::new("a key of 64 MiB", with(Box::new(|| format!("\"{}\":1", "x".repeat(HUGE))))),
        Input::new("a number of 64 MiB", with(Box::new(|| format!("\"a\":{}", "7".repeat(HUGE))))),
        Input::new("64 MiB of space", with(Box::new(|| " ".repeat(HUGE) + "\"a\":1"))),
        Input::new(
            "100000 keys",
            with(Box::new(|| (0..100_000).map(|n| format!("\"k{n}\":0")).collect::<Vec<_>>().join(","))),
        ),
    ]
}

/// Names that lead elsewhere, or are none. Without zero bytes: no environment carries them.
pub(crate) fn hostile_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "",
        " ",
        ".",
        "..",
        "../../x",
        "../../../run/owned",
        "/",
        "/run/owned",
        "a/b",
        "a:b",
        "a b",
        "a\tb",
        "a\nb",
        "-",
        "-rf",
        "--help",
        "%s%n",
        "$(touch /run/owned)",
        "`id`",
        "';--",
        "ü",
        "a\u{202e}b",
        "lo",
        "all",
        "default",
        "eth0/../x",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.extend([b"a\xff".to_vec(), b"\xff\xfe".to_vec(), vec![b'x'; 16], vec![b'x'; 300], vec![b'x'; 100_000]]);
    names
}
