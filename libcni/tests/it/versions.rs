//! VERSION and validation.

use crate::test_folder::{Folder, network, wait};
use expect_test::expect;
use libcni::NetworkConf;
use libcni::cni_spec::{Code, PluginType};

/// The versions of a plugin that is this script, or the error.
fn versions(script: &str) -> String {
    let folder = Folder::with(&[("a", script)]);
    match wait(folder.runtime().version(&PluginType::parse("a").unwrap())) {
        Ok(info) => info.supported.join(" "),
        Err(error) => error.to_string(),
    }
}

#[test]
fn answers_to_version() {
    let texts = [
        r#"[ "$CNI_NETNS$CNI_IFNAME$CNI_PATH" = dummydummydummy ] && [ "$(cat)" = '{"cniVersion":"1.1.0"}' ] && echo '{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.1.0"]}'"#,
        r#"echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1"#,
        r#"echo '{"cniVersion":"0.2.0"}'"#,
        r#"echo '{"cniVersion":"1.0.0"}'"#,
        r#"echo '{"supportedVersions":["1.0.0"]}'"#,
        r#"echo nonsense"#,
        r#"echo why >&2; exit 3"#,
    ]
    .map(versions);
    expect![[r#"
        0.4.0 1.1.0
        0.1.0
        0.1.0 0.2.0
        plugin type="a" failed (version): cannot use answer to VERSION: cniVersion is "1.0.0", but supportedVersions is missing
        plugin type="a" failed (version): cannot use answer to VERSION: it has no cniVersion
        plugin type="a" failed (version): cannot use answer to VERSION: cannot parse JSON: expected ident at line 1 column 2
        plugin type="a" failed (version): netplugin failed: "why". How it ended: exit status 3."#]]
    .assert_eq(&texts.join("\n"));
}

const SPEAKS: &str = r#"echo '{"cniVersion":"1.0.0","supportedVersions":["0.1.0","1.0.0"]}'"#;

#[test]
fn validation_finds_every_fault() {
    let folder = Folder::with(&[("a", SPEAKS)]);
    folder.write("data", "no program");
    let error = wait(folder.runtime().validate(&network("1.1.0", &["a", "absent", "data"]))).unwrap_err();
    expect![[r#"
        plugin type="a" failed (version): plugin a does not support config version "1.1.0". It speaks 0.1.0, 1.0.0.
        plugin type="absent" failed (version): failed to find plugin "absent" in path [$DIR]. Install absent into one of these folders, or correct the type.
        plugin type="data" failed (version): cannot run plugin data: $DIR/data: EACCES: Permission denied. Make it executable, by chmod 755. Nothing was run."#]]
    .assert_eq(&folder.stable(&error.to_string()));
    assert_eq!(error.code(), Some(Code::INCOMPATIBLE_VERSION));
}

#[test]
fn validation_returns_the_enabled_capabilities() {
    let folder = Folder::with(&[("a", SPEAKS)]);
    let list = br#"{"name":"n","plugins":[{"type":"a","capabilities":{"mac":true,"dns":false}},
                                           {"type":"a","capabilities":{"portMappings":true,"mac":true}}]}"#;
    let capabilities = wait(folder.runtime().validate(&NetworkConf::parse(list).unwrap())).unwrap();
    assert_eq!(capabilities.into_iter().collect::<Vec<_>>(), ["mac", "portMappings"]);
}
