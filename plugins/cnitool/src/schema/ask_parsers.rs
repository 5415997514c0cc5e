//! What a parser accepts, found by asking it: a schema of its keys.
//!
//! An object with an unknown key makes the parser note the keys that it has fields for; any other value's error says which
//! type the key is of; and the errors about a text or a number say which words or numbers are accepted. So a schema cannot
//! have other keys or types than the parser, whatever they are declared by.

use cni_spec::json::Ignored;
use serde_json::{Map, Value, json};

/// A key that no plugin has.
const UNKNOWN: &str = "zz-unknown";
/// A text that is no word, name or address.
const NO_WORD: &str = "?/: !";

#[derive(Default)]
pub(super) struct ParserAnswer {
    /// The path that its error names, and the error's text; an empty path is the whole value, or none in particular.
    pub(super) error: Option<(String, String)>,
    /// The keys it has no field for.
    pub(super) ignored: Vec<Ignored>,
}

/// A parser, and a value that it accepts.
pub(super) struct Asker<'a> {
    pub(super) parse: &'a dyn Fn(&Value) -> ParserAnswer,
    pub(super) base: Value,
}

/// The place of a value: the keys that lead to it. The first entry of a list is key `[0]`.
type Place<'a> = &'a [String];

const FIRST: &str = "[0]";

fn below(place: Place<'_>, key: &str) -> Vec<String> {
    [place, &[key.to_owned()]].concat()
}

/// The path of a key as errors write it.
fn path(place: Place<'_>) -> String {
    place.join(".").replace(".[", "[")
}

/// Puts a value into this place of another, whatever is there. Key `[0]` is the first entry of a list.
pub fn put(base: &mut Value, place: Place<'_>, value: Value) {
    match place.split_first() {
        None => *base = value,
        Some((first, rest)) if first == FIRST => match base {
            Value::Array(items) if !items.is_empty() => put(&mut items[0], rest, value),
            _ => {
                *base = json!([null]);
                put(&mut base[0], rest, value);
            }
        },
        Some((key, rest)) => {
            if !base.is_object() {
                *base = json!({});
            }
            put(&mut base[key], rest, value);
        }
    }
}

/// The beginning of errors about a combination of a range's keys: they do not restrict the single key.
const OF_SEVERAL: &str = "invalid range set ";

impl Asker<'_> {
    /// What the parser says about the base with `value` in this place.
    fn ask(&self, place: Place<'_>, value: Value) -> ParserAnswer {
        let mut whole = self.base.clone();
        put(&mut whole, place, value);
        (self.parse)(&whole)
    }

    /// Why the value is refused; `None`: it is accepted, as far as this key is concerned.
    fn refused(&self, place: Place<'_>, value: &Value) -> Option<String> {
        let is_about = |(named, text): &(String, String)| *named == path(place) && !text.starts_with(OF_SEVERAL);
        let (named, text) = self.ask(place, value.clone()).error.filter(is_about)?;
        let reason = text.split_once(&format!("{} = {value}: ", named)).map(|(_, reason)| reason.to_owned());
        Some(reason.unwrap_or(text))
    }

    /// Whether the base without this key is refused.
    pub(super) fn requires(&self, key: &str) -> bool {
        self.ask(&[key.to_owned()], Value::Null).error.is_some()
    }

    pub(super) fn schema(&self, place: Place<'_>) -> Value {
        let unknown = below(place, UNKNOWN);
        let object = merged(&self.at(place), &json!({UNKNOWN: true}));
        let answer = self.ask(place, object.clone());
        // The keys of each type that the parser decodes.
        let known: Vec<_> = answer.ignored.iter().filter(|one| one.path == path(&unknown)).collect();
        if !known.is_empty() {
            let property = |key: &&str| ((*key).to_owned(), or_null(self.schema(&below(place, key))));
            let keys = known.into_iter().flat_map(|one| one.known);
            return json!({"type": "object", "properties": keys.map(property).collect::<Map<_, _>>()});
        }
        if let Some(reason) = self.refused(place, &object) {
            return self.plain(place, &reason);
        }
        match self.refused(&unknown, &json!({})) {
            Some(_) => json!({"type": "object", "additionalProperties": self.schema(&unknown)}),
            None => json!({}),
        }
    }

    /// The base's object in this place.
    fn at(&self, place: Place<'_>) -> Value {
        let into = |value: &Value, key: &String| match key == FIRST {
            true => value[0].clone(),
            false => value[key].clone(),
        };
        place.iter().fold(self.base.clone(), |value, key| into(&value, key))
    }

    /// The schema of a value that is no object. The reason says which type it has.
    fn plain(&self, place: Place<'_>, reason: &str) -> Value {
        let reason = reason.strip_prefix("expected ").unwrap_or(reason);
        match reason {
            "true or false" => json!({"type": "boolean"}),
            "a string" => self.text(place),
            "a list" => json!({"type": "array", "items": self.schema(&below(place, FIRST))}),
            _ if reason.starts_with("one of ") => self.text(place),
            _ => {
                // The rule is the parser's alone.
                let Some((low, high)) = numbers(reason) else { return json!({}) };
                let (low, high) = self.narrowed(place, low, high);
                let types = if reason.ends_with("or a name") { json!(["integer", "string"]) } else { json!("integer") };
                json!({"type": types, "minimum": low, "maximum": high})
            }
        }
    }

    /// The numbers of a type that the parser accepts here.
    fn narrowed(&self, place: Place<'_>, low: i128, high: i128) -> (i128, i128) {
        let refused = |number: i128| self.refused(place, &number_value(number));
        let accepted = |number: i128| refused(number).is_none();
        let within = [high, low].into_iter().find_map(|end| numbers(&refused(end)?));
        let is_all = |(a, b): &(i128, i128)| accepted(*a) && accepted(*b) && (*b == high || !accepted(b + 1));
        let (low, high) = within.filter(is_all).unwrap_or((low, high));
        match (accepted(0), accepted(low)) {
            (true, _) => (low.min(0), high),
            (false, false) if accepted(low + 1) => (low + 1, high),
            (false, _) => (low, high),
        }
    }

    fn text(&self, place: Place<'_>) -> Value {
        let accepted = |text: &str| self.refused(place, &json!(text)).is_none();
        let Some(reason) = self.refused(place, &json!(NO_WORD)) else { return json!({"type": "string"}) };
        let mut words = words(&reason);
        if !words.is_empty() && words.iter().all(|word| accepted(word)) {
            let in_any_case = words.iter().all(|word| accepted(&word.to_uppercase()));
            words.extend(accepted("").then(String::new));
            if in_any_case {
                let pattern = format!("^({})$", words.iter().map(|word| any_case(word)).collect::<Vec<_>>().join("|"));
                return json!({"anyOf": [{"enum": words}, {"type": "string", "pattern": pattern}]});
            }
            return json!({"enum": words});
        }
        let reason = reason.strip_prefix(&format!("{NO_WORD:?} ")).unwrap_or(&reason);
        let Some((_, forms)) = FORMS.iter().find(|(text, _)| reason.starts_with(text)) else {
            // The rule is the parser's alone.
            return json!({"type": "string"});
        };
        // The accepted family may depend on another key.
        let forms = forms.iter().filter(|form| form.samples.iter().any(|sample| accepted(sample)));
        let patterns = accepted("").then_some("").into_iter().chain(forms.flat_map(|form| form.patterns).copied());
        let patterns: Vec<String> = patterns.map(|pattern| format!("^{pattern}$")).collect();
        if patterns.iter().all(|pattern| pattern == "^$") {
            return json!({}); // no sample is accepted
        }
        json!({"type": "string", "pattern": patterns.join("|")})
    }
}

fn any_case(word: &str) -> String {
    word.chars().map(|c| format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())).collect()
}

/// A form of texts: if one of the samples is accepted, all texts that match one of the patterns may be.
struct Form {
    samples: &'static [&'static str],
    patterns: &'static [&'static str],
}

const ADDRESS: Form = Form {
    samples: &["10.9.0.5", "fd00:9::5"],
    patterns: &[r"([0-9]{1,3}\.){3}[0-9]{1,3}", "[0-9a-fA-F:.]*:[0-9a-fA-F:.]*"],
};
const PREFIX: Form = Form {
    samples: &["10.9.0.0/24", "fd00:9::/64"],
    patterns: &[
        r"([0-9]{1,3}\.){3}[0-9]{1,3}/([0-9]|[12][0-9]|3[0-2])",
        "[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8])",
    ],
};
const MAC: Form =
    Form { samples: &["02:00:00:00:00:05"], patterns: &["[0-9a-fA-F][02468aceACE]([:.-]?[0-9a-fA-F]{2}){5}"] };
const NAME: Form = Form { samples: &["eth0"], patterns: &["[^/: \\t\\n]{1,15}"] };

const ANY_NAME: Form = Form { samples: &["eth0"], patterns: &["[^/: \\t\\n]{1,127}"] };

/// How errors about a text begin, and the forms that it may have.
const FORMS: [(&str, &[Form]); 7] = [
    ("is no IP address", &[ADDRESS, PREFIX]),
    ("is no address with prefix", &[ADDRESS, PREFIX]),
    ("expected an address with prefix", &[ADDRESS, PREFIX]),
    ("is no Ethernet address", &[MAC]),
    ("cannot be a link's name: 1 to 127 bytes", &[ANY_NAME]),
    ("cannot be a link's name", &[NAME]),
    ("interface name ", &[NAME]),
];

fn merged(object: &Value, more: &Value) -> Value {
    let mut object = object.as_object().cloned().unwrap_or_default();
    object.extend(more.as_object().cloned().unwrap_or_default());
    Value::Object(object)
}

/// `A` and `B` of the last `A to B` in a text.
fn numbers(text: &str) -> Option<(i128, i128)> {
    let number = |word: &str| word.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let words: Vec<&str> = text.split(' ').collect();
    let stretches = words.windows(3).filter(|three| three[1] == "to");
    stretches.filter_map(|three| Some((number(three[0])?, number(three[2])?))).next_back()
}

fn number_value(number: i128) -> Value {
    serde_json::from_str(&number.to_string()).unwrap_or_default()
}

/// The words of `none of A, B`, `neither A nor B`, `expected A, B or C`.
fn words(reason: &str) -> Vec<String> {
    let list = ["none of ", "neither ", "one of ", "expected "].iter().find_map(|before| reason.split_once(before));
    let list = list.map_or("", |(_, list)| list).replace(" or ", ", ").replace(" nor ", ", ");
    let words = list.split(", ").map(|word| word.trim_matches(['"', '`']).to_owned());
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    if words.iter().any(|word| word.contains(' ')) { Vec::new() } else { words }
}

/// A key without a value counts as absent.
fn or_null(mut schema: Value) -> Value {
    if let Some(any) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        any.push(json!({"type": "null"}));
    } else if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    } else if let Some(kind) = schema.get_mut("type") {
        let mut kinds = kind.as_array().cloned().unwrap_or_else(|| vec![kind.clone()]);
        kinds.push("null".into());
        *kind = kinds.into();
    }
    schema
}
