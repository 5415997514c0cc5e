//! Names and aliases that are no UTF-8, as text from which their bytes can be had again.
//!
//! The kernel takes any bytes but `/`, `:` and blanks for a link's name, and any for its alias; the administrator of a
//! namespace chooses them. The packet crates refuse a whole message for one byte that is no UTF-8. So each such byte is
//! read as a character for private use, U+EF80 to U+EFFF, and written as the byte again. Those characters themselves are
//! read byte by byte, so that different names stay different.

use std::borrow::Cow;

/// The character for byte 0 if there were one; bytes that are no UTF-8 begin at 0x80.
const FIRST: u32 = 0xef00;
/// The first byte of each of the characters in UTF-8.
const LEAD: u8 = 0xee;

/// The text of a name or an alias.
pub(crate) fn read(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.is_ascii() {
        return Cow::Borrowed(bytes);
    }
    let mut text = String::with_capacity(bytes.len() * 3);
    let push_byte = |text: &mut String, byte: &u8| text.extend(char::from_u32(FIRST + u32::from(*byte)));
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match byte_of(character) {
                Some(_) => {
                    character.encode_utf8(&mut [0; 4]).as_bytes().iter().for_each(|byte| push_byte(&mut text, byte));
                }
                None => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut text, byte));
    }
    Cow::Owned(text.into_bytes())
}

/// Whether [`written`] may change a text in these bytes.
pub(crate) fn may_change(bytes: &[u8]) -> bool {
    bytes.contains(&LEAD)
}

/// The bytes of a name or an alias whose text [`read`] has made; others stay as they are.
pub(crate) fn written(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(characters) = may_change(text).then(|| str::from_utf8(text).ok()).flatten() else {
        return Cow::Borrowed(text);
    };
    let mut bytes = Vec::with_capacity(text.len());
    for character in characters.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

fn byte_of(character: char) -> Option<u8> {
    u32::from(character).checked_sub(FIRST).and_then(|byte| u8::try_from(byte).ok()).filter(|byte| !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_written_as_it_is() {
        for text in ["", "eth0", "cni:net/é/eth0", "\u{e000}\u{ef7f}\u{f000}"] {
            assert_eq!(
                (read(text.as_bytes()), written(text.as_bytes())),
                (text.as_bytes().into(), text.as_bytes().into())
            );
        }
    }

    #[test]
    fn other_bytes_are_read_as_text_and_written_as_they_were() {
        let mut all: Vec<u8> = (1..=255).collect();
        all.extend("é\u{ef80}\u{efff}".as_bytes());
        for bytes in [&b"a\xff\xfez"[..], b"\xe2\x82", b"\xc3\xa9\xc3", "\u{ef80}".as_bytes(), &all] {
            let text = read(bytes).into_owned();
            assert!(str::from_utf8(&text).is_ok() && text != bytes);
            assert_eq!(written(&text), bytes);
        }
        assert_ne!(read(b"\xff"), read("\u{efff}".as_bytes()));
    }
}
