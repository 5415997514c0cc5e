//! Objects and their versions: what each verb does to them, and with which error it refuses.

use serde_json::{Value, json};

use crate::{Change, Name, Resource, State};

/// An error of the API: its number, its reason, its words, and what it is about.
pub(crate) struct Refused {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Value,
}

pub(crate) type Done = Result<(u16, Value), Refused>;

fn refused(code: u16, reason: &'static str, kind: &str, name: &str, words: &str) -> Refused {
    let message = format!("{kind} {name:?} {words}");
    // The cause is what `kubectl` shows of an invalid object.
    let details = json!({ "name": name, "kind": kind, "causes": [{ "field": "", "message": words }] });
    Refused { code, reason, message, details }
}

fn version_of(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty())
}

impl State {
    /// Writes an object with the next version. One that is as it was keeps its version, and no one is told.
    pub(crate) fn keep(&mut self, name: &Name, mut object: Value) -> Value {
        let resource = self.resources.iter().find(|resource| resource.plural == name.0).cloned();
        let resource = resource.unwrap_or_else(|| panic!("no resource {}", name.0));
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.clone().into();
        let before = self.objects.get(name);
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let of = |key: &str| before.map(|before| before["metadata"][key].clone()).filter(|value| !value.is_null());
        let uid = of("uid").unwrap_or_else(|| format!("00000000-0000-4000-8000-{:012}", self.version + 1).into());
        object["metadata"]["uid"] = uid;
        object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["metadata"]["resourceVersion"] = of("resourceVersion").unwrap_or_default();
        if before == Some(&object) {
            return object;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(name.clone(), object.clone());
        self.log.push(Change { version: self.version, kind, name: name.clone(), object: object.clone() });
        object
    }

    pub(crate) fn remove(&mut self, name: &Name) {
        let Some(mut object) = self.objects.remove(name) else { return };
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.log.push(Change { version: self.version, kind: "DELETED", name: name.clone(), object });
    }

    pub(crate) fn get(&self, name: &Name) -> Result<&Value, Refused> {
        self.objects.get(name).ok_or_else(|| refused(404, "NotFound", &name.0, &name.2, "not found"))
    }

    pub(crate) fn create(&mut self, resource: &Resource, namespace: &str, object: Value, is_dry: bool) -> Done {
        if resource.is_namespaced && !self.namespaces.contains(namespace) {
            return Err(refused(404, "NotFound", "namespaces", namespace, "not found"));
        }
        let own = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let name = (resource.plural.clone(), namespace.to_owned(), own);
        if self.objects.contains_key(&name) {
            return Err(refused(409, "AlreadyExists", &name.0, &name.2, "already exists"));
        }
        let object = resource.admit(object, &name)?;
        Ok((201, if is_dry { object } else { self.keep(&name, object) }))
    }

    pub(crate) fn update(&mut self, resource: &Resource, name: &Name, object: Value, is_dry: bool) -> Done {
        let found = self.get(name)?;
        let Some(version) = version_of(&object) else {
            return Err(refused(422, "Invalid", &name.0, &name.2, "must be specified for an update"));
        };
        if Some(version) != version_of(found) {
            return Err(refused(409, "Conflict", &name.0, &name.2, "the object has been modified"));
        }
        let object = resource.admit(object, name)?;
        Ok((200, if is_dry { object } else { self.keep(name, object) }))
    }

    /// Applies the fields that a patch has; by `apply` also to an object that is not there.
    pub(crate) fn patch(&mut self, resource: &Resource, name: &Name, patch: Value, is_apply: bool) -> Done {
        match self.get(name).cloned() {
            Ok(mut object) => {
                merge(&mut object, patch);
                self.update(resource, name, object, false)
            }
            Err(_) if is_apply => self.create(resource, &name.1, patch, false),
            Err(refused) => Err(refused),
        }
    }

    pub(crate) fn delete(&mut self, name: &Name, options: &Value) -> Done {
        let found = self.get(name)?;
        for key in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][key];
            if !wanted.is_null() && *wanted != found["metadata"][key] {
                return Err(refused(409, "Conflict", &name.0, &name.2, "precondition failed"));
            }
        }
        self.remove(name);
        Ok((200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })))
    }
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The object as it is kept, without fields that the schema does not know.
    fn admit(&self, mut object: Value, name: &Name) -> Result<Value, Refused> {
        let metadata = object["metadata"].clone();
        if metadata["name"] != *name.2 || !is_subdomain(&name.2) {
            return Err(refused(422, "Invalid", &name.0, &name.2, "metadata.name is invalid"));
        }
        if self.schema.is_object() {
            let fault = |why: String| refused(422, "Invalid", &name.0, &name.2, &format!("is invalid: {why}"));
            check(&self.schema, &mut object, "").map_err(fault)?;
            object["metadata"] = metadata;
        }
        Ok(object)
    }
}

fn is_subdomain(name: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part =
        |part: &str| part.starts_with(is_end) && part.ends_with(is_end) && part.chars().all(|c| is_end(c) || c == '-');
    name.len() <= 253 && name.split('.').all(is_part)
}

/// Checks what our definitions say of a value: types, required fields, lengths. Drops fields that are not defined.
fn check(schema: &Value, value: &mut Value, path: &str) -> Result<(), String> {
    let is_of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("string") => value.is_string(),
        other => panic!("the test's server knows no type {other:?}"),
    };
    if !is_of_type {
        return Err(format!("{path}: must be of type {}", schema["type"]));
    }
    let length = value.as_str().map_or(0, |text| text.chars().count() as u64);
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        return Err(format!("{path}: may not be longer than {}", schema["maxLength"]));
    }
    let (Some(fields), Some(known)) = (value.as_object_mut(), schema["properties"].as_object()) else { return Ok(()) };
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(key) {
            return Err(format!("{path}.{key}: Required value"));
        }
    }
    fields.retain(|key, _| known.contains_key(key));
    fields.iter_mut().try_for_each(|(key, value)| check(&known[key], value, &format!("{path}.{key}")))
}

/// Merges a patch (RFC 7386).
fn merge(value: &mut Value, patch: Value) {
    match patch {
        Value::Object(fields) if value.is_object() => {
            for (key, new) in fields {
                match (new, value.as_object_mut()) {
                    (Value::Null, Some(old)) => drop(old.remove(&key)),
                    (new, _) => merge(&mut value[&key], new),
                }
            }
        }
        new => *value = new,
    }
}
