//! What GC removes and keeps, by the lists of attachments in its config (SPEC 2, GC) and a list of ours beside them.
//!
//! A list of valid attachments says what may stay, and is out of date as soon as another runtime adds a container. A runtime
//! that has examined the node before it made that list says so with the key [`SEEN`]: the attachments that were on the node
//! then. What is not among them came later, and stays. Plugins of others do not know the key.

use crate::attachment::Attachment;
use crate::conf::ConfObject;
use crate::error::{CniError, Code};
use crate::json;
use crate::names::{ContainerId, IfName};
use serde::Deserialize;
use std::borrow::Borrow;
use std::collections::BTreeSet;

/// The keys of the valid attachments, in the specification and in the reference's requests, which have both.
pub const VALID: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];
/// The key of the attachments that a look at the node found, valid or not: of others GC removes nothing.
pub const SEEN: &str = "cni-plugins/seen";

#[derive(Debug, Deserialize)]
struct WireAttachment {
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
}

impl ConfObject {
    /// The attachments to this network that GC must keep; `None` without a list, which does not mean that none is valid: Go's
    /// library sends none if its caller gave none. `null` is an empty list: that library sends it when nothing is valid.
    ///
    /// # Errors
    /// Code 7 if an entry is malformed.
    pub fn valid_attachments(&self) -> Result<Option<Vec<Attachment>>, CniError> {
        for key in VALID {
            if let Some(list) = self.attachments(key)? {
                return Ok(Some(list));
            }
        }
        Ok(VALID.into_iter().any(|key| self.has(key)).then(Vec::new))
    }

    /// The attachments of [`SEEN`]; `None` if GC has no such key. `null` is an empty list: nothing was seen.
    ///
    /// # Errors
    /// Code 7 if an entry is malformed.
    pub fn seen_attachments(&self) -> Result<Option<BTreeSet<Attachment>>, CniError> {
        let nothing = || self.has(SEEN).then(BTreeSet::new);
        Ok(self.attachments(SEEN)?.map(BTreeSet::from_iter).or_else(nothing))
    }

    /// The attachments of one list; `None` if it is absent or `null`.
    fn attachments(&self, key: &str) -> Result<Option<Vec<Attachment>>, CniError> {
        let list = self.get::<Vec<WireAttachment>>(&[key])?;
        list.map(|list| list.iter().map(|entry| self.attachment(key, entry)).collect()).transpose()
    }

    fn attachment(&self, key: &str, entry: &WireAttachment) -> Result<Attachment, CniError> {
        let bad = |error: CniError| {
            let msg = format!("cannot use {key}: {}", error.msg);
            CniError { code: Code::INVALID_CONFIG, msg, ..error }
        };
        Ok(Attachment {
            network: self.name().clone(),
            container_id: ContainerId::parse(&entry.container_id).map_err(bad)?,
            ifname: IfName::parse(&entry.ifname).map_err(bad)?,
        })
    }

    /// Whether the object has the key, be it with `null`.
    fn has(&self, key: &str) -> bool {
        self.value().as_object().is_some_and(|object| object.keys().any(|name| name.eq_ignore_ascii_case(key)))
    }
}

/// The config with another list of valid attachments.
///
/// # Errors
/// Code 6: it is no JSON object.
pub fn with_valid_attachments(input: &[u8], valid: &[Attachment]) -> Result<Vec<u8>, CniError> {
    let mut conf = json::parse(input)?;
    let Some(object) = conf.as_object_mut() else {
        return Err(CniError::new(Code::DECODING, "cannot decode the config: it is no JSON object"));
    };
    object.retain(|key, _| !VALID.iter().any(|known| key.eq_ignore_ascii_case(known)));
    let entry =
        |one: &Attachment| serde_json::json!({"containerID": one.container_id.as_str(), "ifname": one.ifname.as_str()});
    object.insert(VALID[0].to_owned(), valid.iter().map(entry).collect());
    Ok(json::to_text(&conf).into_bytes())
}

/// The attachments to a network that a GC removes: those that are not valid and, where the runtime says what it saw, that
/// it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep<A> {
    /// The attachments that stay.
    pub valid: Vec<A>,
    /// The attachments that were on the node when the runtime examined it; `None`: all were.
    pub seen: Option<Vec<A>>,
}

impl<A> Sweep<A> {
    /// The same attachments in other words.
    pub fn map<'a, B>(&'a self, word: impl Fn(&'a A) -> B) -> Sweep<B> {
        let words = |list: &'a Vec<A>| list.iter().map(&word).collect();
        Sweep { valid: words(&self.valid), seen: self.seen.as_ref().map(words) }
    }

    /// The objects that are removed, by what they say of their attachment: a mark, or less than the attachment. Where valid
    /// attachments share that with others, it stays.
    pub fn by<'a, K: Ord>(&'a self, key: impl Fn(&'a A) -> K) -> SweptKeys<K> {
        self.by_each(|one| [key(one)])
    }

    /// As [`Sweep::by`], where the objects of an attachment have several keys.
    pub fn by_each<'a, K: Ord, I: IntoIterator<Item = K>>(&'a self, keys: impl Fn(&'a A) -> I) -> SweptKeys<K> {
        let all = |list: &'a Vec<A>| list.iter().flat_map(&keys).collect();
        SweptKeys { valid: all(&self.valid), seen: self.seen.as_ref().map(all) }
    }
}

/// All but these.
impl<A: Clone> From<&[A]> for Sweep<A> {
    fn from(valid: &[A]) -> Self {
        Self { valid: valid.to_vec(), seen: None }
    }
}

/// All but these.
impl<A: Clone, const N: usize> From<&[A; N]> for Sweep<A> {
    fn from(valid: &[A; N]) -> Self {
        valid.as_slice().into()
    }
}

/// The keys of the objects that a GC removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweptKeys<K> {
    valid: BTreeSet<K>,
    seen: Option<BTreeSet<K>>,
}

impl<K: Ord> SweptKeys<K> {
    /// Whether GC removes the objects with this key.
    pub fn has<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        !self.valid.contains(key) && self.seen.as_ref().is_none_or(|seen| seen.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> ConfObject {
        ConfObject::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_missing_list_is_no_empty_one() {
        assert_eq!(object(r#"{"name":"n"}"#).valid_attachments().unwrap(), None);
        let list = object(r#"{"name":"n","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]}"#);
        assert_eq!(list.valid_attachments().unwrap().unwrap().len(), 1);
        let bad = object(r#"{"name":"n","cni.dev/attachments":[{"containerID":"../c","ifname":"eth0"}]}"#);
        assert_eq!(bad.valid_attachments().unwrap_err().code, Code::INVALID_CONFIG);
    }

    /// Go's library writes a list without entries as `null`.
    #[test]
    fn a_list_that_is_null_is_empty() {
        for text in [
            r#"{"name":"n","cni.dev/valid-attachments":null,"cni.dev/attachments":null}"#,
            r#"{"name":"n","cni.dev/valid-attachments":null}"#,
            r#"{"name":"n","cni.dev/attachments":null}"#,
        ] {
            assert_eq!(object(text).valid_attachments().unwrap().unwrap(), [], "{text}");
        }
        let one = object(
            r#"{"name":"n","cni.dev/valid-attachments":null,"cni.dev/attachments":[{"containerID":"c","ifname":"e"}]}"#,
        );
        assert_eq!(one.valid_attachments().unwrap().unwrap().len(), 1);
    }

    #[test]
    fn the_list_of_what_a_look_found_is_optional() {
        let seen = |list: &str| object(&format!(r#"{{"name":"n"{list}}}"#)).seen_attachments();
        assert_eq!(seen("").unwrap(), None);
        assert_eq!(seen(r#","cni-plugins/seen":null"#).unwrap(), Some(BTreeSet::new()));
        let one = Attachment::parse("n", "c", "eth0").unwrap();
        let list = r#","cni-plugins/seen":[{"containerID":"c","ifname":"eth0"}]"#;
        assert_eq!(seen(list).unwrap(), Some(BTreeSet::from([one])));
        for bad in [r#","cni-plugins/seen":5"#, r#","cni-plugins/seen":[{"containerID":"c","ifname":"a/b"}]"#] {
            let error = seen(bad).unwrap_err();
            assert!(error.code == Code::INVALID_CONFIG && error.msg.contains(SEEN), "{error}");
        }
    }

    #[test]
    fn what_is_valid_and_what_came_later_is_not_swept() {
        let sweep = Sweep { valid: vec!["a1"], seen: Some(vec!["a1", "a2", "b1"]) };
        let keys = sweep.by(|one| *one);
        assert_eq!(["a1", "a2", "b1", "c1"].map(|key| keys.has(key)), [false, true, true, false]);
        // A key that a valid attachment shares stays.
        let containers = sweep.by(|one| one[..1].to_owned());
        assert_eq!(["a", "b", "c"].map(|key| containers.has(key)), [false, true, false]);
        let all = Sweep::from(&["a1"]).by(|one| *one);
        assert!(!all.has("a1") && all.has("c1"));
    }

    #[test]
    fn a_delegate_gets_the_list_of_what_was_seen_unchanged() {
        let seen = r#"{"name":"n","cni.dev/attachments":[],"cni-plugins/seen":[{"containerID":"c","ifname":"eth0"}]}"#;
        let valid = [Attachment::parse("n", "d", "eth0").unwrap()];
        let passed = with_valid_attachments(seen.as_bytes(), &valid).unwrap();
        let passed = ConfObject::parse(&passed).unwrap();
        assert_eq!(passed.valid_attachments().unwrap().unwrap(), valid);
        assert_eq!(passed.seen_attachments().unwrap(), object(seen).seen_attachments().unwrap());
    }
}
