//! Checks of decoded values that several targets share.

use cni_spec::{CniError, Code, SpecVersion};
use std::path::{Component, Path};

/// The text that `data` is, with what is no UTF-8 replaced.
pub(crate) fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// `name` joined to a folder is a direct child of that folder, and no call to the kernel cuts it short.
pub(crate) fn stays_in_its_folder(name: &str) {
    let mut components = Path::new(name).components();
    let first = components.next();
    assert!(matches!(first, Some(Component::Normal(part)) if part == name), "{name:?} is no file name");
    assert_eq!(components.next(), None, "{name:?} is a path");
    assert!(!name.contains('\0'), "{name:?} has a NUL");
}

/// An error has one line that says what failed, and survives the wire in every version, but for the key, which is in the text.
pub(crate) fn is_sound(error: &CniError) {
    assert!(!error.msg.is_empty() && !error.msg.contains(['\n', '\r']), "msg is one line: {:?}", error.msg);
    assert_ne!(error.code, Code(0));
    let sent = CniError { key: None, ..error.clone() };
    for version in SpecVersion::ALL {
        assert_eq!(CniError::find_in(error.to_json(version).as_bytes()).as_ref(), Some(&sent));
    }
}
