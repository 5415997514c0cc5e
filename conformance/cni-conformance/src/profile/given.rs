//! Profiles of users' configs.

use super::{Profile, Role, Stage};
use serde_json::{Map, Value, json};

pub(super) fn of_config(name: &str, config: &Value, role: Option<Role>) -> Result<Profile, String> {
    let plugins: Vec<Value> = match config.get("plugins") {
        None if config.is_object() => vec![config.clone()],
        Some(Value::Array(plugins)) if !plugins.is_empty() => plugins.clone(),
        _ => return Err("it is no plugin object, and has no list of plugins".to_owned()),
    };
    let is_list = config.get("plugins").is_some();
    let role = match role {
        Some(Role::List) if !is_list => return Err("role list needs a list of plugins".to_owned()),
        Some(role) if is_list && role != Role::List => {
            return Err("a list of plugins is tried as a list only: write the plugin in a file of its own".to_owned());
        }
        Some(role) => role,
        None if is_list => Role::List,
        None => derived(config),
    };
    let plugins: Vec<Value> = plugins.into_iter().map(plain).collect();
    let executable = executable(plugins.first().unwrap_or(&Value::Null), role)?;
    if let Some(number) = plugins.iter().position(|plugin| kind(plugin).is_none() && role != Role::Ipam) {
        return Err(format!("plugin {} has no type", number + 1));
    }
    let mut needs: Vec<String> =
        plugins.iter().filter_map(kind).filter_map(Profile::find).flat_map(|known| known.needs).collect();
    needs.dedup();
    let stage = stage(&plugins, role);
    let oldest = [Role::Chained, Role::List].contains(&role).then(|| "0.3.0".to_owned());
    let (samples, prev_result) = (Map::new(), Map::new());
    Ok(Profile {
        name: name.to_owned(),
        role,
        plugins,
        executable,
        stage,
        needs,
        oldest,
        pool: None,
        samples,
        prev_result,
        delegate: None,
        unbound: std::collections::BTreeMap::new(),
    })
}

/// The role of one plugin object: that of the known plugin of its type, else what it looks like.
fn derived(config: &Value) -> Role {
    match kind(config).map(Profile::find) {
        Some(Some(known)) => known.role,
        Some(None) if config.get("prevResult").is_some() => Role::Chained,
        Some(None) => Role::Interface,
        None => Role::Ipam,
    }
}

fn kind(plugin: &Value) -> Option<&str> {
    plugin.get("type").and_then(Value::as_str)
}

fn executable(plugin: &Value, role: Role) -> Result<String, String> {
    let (value, key) = match role {
        Role::Ipam => (plugin.pointer("/ipam/type"), "ipam.type"),
        _ => (plugin.get("type"), "type"),
    };
    match value.and_then(Value::as_str) {
        Some(name) if !name.is_empty() && !name.contains('/') => Ok(name.to_owned()),
        _ if role == Role::Ipam && plugin.get("type").is_none() => {
            Err("it has neither type nor, as an IPAM plugin's has, ipam.type to name the executable".to_owned())
        }
        _ => Err(format!("it has no {key}, which has to name the executable")),
    }
}

/// A plugin object without what the kit sets itself.
fn plain(mut plugin: Value) -> Value {
    if let Some(object) = plugin.as_object_mut() {
        for key in ["name", "cniVersion", "cniVersions", "prevResult", "runtimeConfig"] {
            object.shift_remove(key);
        }
        if !object.contains_key("type") {
            object.insert("type".to_owned(), json!("kit-user"));
        }
    }
    plugin
}

/// The things that a node must have, as the plugin objects name them.
fn stage(plugins: &[Value], role: Role) -> Vec<Stage> {
    let named = |key: &str| {
        let texts = plugins.iter().filter_map(|plugin| plugin.get(key)?.as_str()).map(str::to_owned);
        texts.collect::<std::collections::BTreeSet<_>>()
    };
    let mut stage = Vec::new();
    stage.extend(named("master").into_iter().map(|name| Stage::Cable { name }));
    stage.extend(named("device").into_iter().map(|name| Stage::Device { name }));
    stage.extend((role == Role::Chained).then_some(Stage::Attached));
    stage
}

#[cfg(test)]
mod tests {
    use super::{Profile, Role, Stage};

    fn role(text: &str) -> Result<(Role, String), String> {
        Profile::given("given", text, None).map(|profile| (profile.role, profile.executable))
    }

    #[test]
    fn the_role_follows_from_the_config() {
        let found = |role, executable: &str| Ok((role, executable.to_owned()));
        assert_eq!(role(r#"{"type":"mine","ipam":{"type":"x"}}"#), found(Role::Interface, "mine"));
        assert_eq!(role(r#"{"type":"mine"}"#), found(Role::Interface, "mine"));
        assert_eq!(role(r#"{"type":"portmap"}"#), found(Role::Chained, "portmap"));
        assert_eq!(role(r#"{"type":"mine","prevResult":{}}"#), found(Role::Chained, "mine"));
        assert_eq!(role(r#"{"ipam":{"type":"x"}}"#), found(Role::Ipam, "x"));
        assert_eq!(role(r#"{"plugins":[{"type":"a"},{"type":"b"}]}"#), found(Role::List, "a"));
    }

    #[test]
    fn what_is_no_config_is_refused() {
        for text in ["", "[]", "{}", r#"{"plugins":[]}"#, r#"{"plugins":{}}"#, r#"{"type":"a/b"}"#, r#"{"type":""}"#] {
            assert!(role(text).is_err(), "{text}");
        }
    }

    #[test]
    fn links_that_a_config_names_are_laid() {
        let given = Profile::given("given", r#"{"type":"mine","master":"eth7","prevResult":{}}"#, None).unwrap();
        assert_eq!(given.stage, [Stage::Cable { name: "eth7".to_owned() }, Stage::Attached]);
    }
}
