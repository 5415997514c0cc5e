use super::*;
use expect_test::{Expect, expect};

fn conf(keys: &str) -> Result<Conf, CniError> {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"net","type":"macvlan"{keys}}}"#);
    Conf::from_conf(&ConfObject::parse(text.as_bytes())?)
}

#[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
fn refused(keys: &str, expected: Expect) {
    expected.assert_eq(&conf(keys).unwrap_err().msg);
}

#[test]
fn bad_keys_are_named_with_their_value() {
    refused(
        r#","mode":"source""#,
        expect![[r#"cannot use network config: key mode = "source": it is none of bridge, private, vepa, passthru"#]],
    );
    refused(
        r#","master":"a b""#,
        expect![[
            r#"cannot use network config: key master = "a b": "a b" cannot be a link's name: 1 to 127 bytes without white space, /, : and %, and not . or .."#
        ]],
    );
    refused(
        r#","mac":"01:00:00:00:00:01""#,
        expect![[r#"cannot use mac = "01:00:00:00:00:01": it is a multicast address"#]],
    );
    assert!(conf(r#","mtu":-1"#).unwrap_err().msg.contains("mtu"));
}
