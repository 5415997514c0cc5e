//! Network configurations: read, checked, found by name (SPEC 1).
//!
//! A [`NetworkConf`] is a list of plugins. Single-plugin files (`.conf`, `.json`) become lists of one.
//! [`find`] looks a network up in a folder; [`NetworkConf::parse`] reads one from memory.

mod search_order;

pub use search_order::{
    DefaultNetwork, EXTENSIONS, Found, PassedOver, conf_files, default_network, find, search_order,
};

use crate::error::Error;
use crate::execution_conf::{Added, stdin};
use crate::raw_object::{ObjectWriter, PluginObject, RawObject, decode, shown};
use crate::{RuntimeConf, plain_file};
use cni_spec::version::parse_number;
use cni_spec::{CniError, Code, NetworkName, SpecVersion, json};
use serde_json::value::RawValue;
use std::fmt;
use std::path::{Path, PathBuf};

/// A network: its name, its version and its plugins in order.
#[derive(Debug, Clone)]
pub struct NetworkConf {
    /// `name` as written; its characters are checked on use, see [`NetworkConf::network_name`].
    pub name: String,
    /// The version that was chosen from `cniVersions` and `cniVersion`, as written; may be empty.
    pub cni_version: String,
    /// Whether CHECK is disabled.
    pub disable_check: bool,
    /// Whether GC is disabled.
    pub disable_gc: bool,
    /// Where records of calls go, from the key `log`: see [`crate::CallLog`].
    pub log: Option<String>,
    /// The plugins, in the order of ADD.
    pub plugins: Vec<PluginObject>,
    /// The bytes for the cache: the list's own, or, when plugins came from a folder, a list that contains them all.
    pub(crate) bytes: Vec<u8>,
    /// The file it was read from.
    path: Option<PathBuf>,
}

/// The end of the error about a list without plugins.
pub const NO_PLUGINS: &str = "no plugins in list";

/// The files of plugins that follow those in a list: `<folder of the list>/<name>/*.conf`, by name. None if the list sets
/// `loadOnlyInlinedPlugins` or cannot be parsed. `bytes` is the content of the list at `path`.
///
/// # Errors
/// As [`conf_files`].
pub fn plugin_files(path: &Path, bytes: &[u8]) -> Result<Vec<PathBuf>, Error> {
    let dir = List::parse(bytes).ok().filter(|_| is_list(path)).and_then(|list| list.plugins_dir(path));
    dir.map_or_else(|| Ok(Vec::new()), |dir| conf_files(&dir, &["conf"]))
}

/// Whether a file of this name is read as a list. Other files are a single plugin's config.
#[must_use]
pub fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "conflist")
}

impl NetworkConf {
    /// Reads a file: a list if it is called `*.conflist`, else a single plugin.
    ///
    /// A list's plugins are followed by those of `<folder of the list>/<name>/*.conf`, unless it sets
    /// `loadOnlyInlinedPlugins`.
    ///
    /// # Errors
    /// [`Error::ReadConfig`] or [`Error::Config`]; a list without any plugin is an error.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = read(path)?;
        if !is_list(path) {
            let single = Self::parse_single(&bytes).map_err(|error| config_error(path, error))?;
            return Ok(Self { path: Some(path.to_owned()), ..single });
        }
        let list = List::parse(&bytes).map_err(|error| config_error(path, error))?;
        let network = match list.plugins_dir(path) {
            Some(dir) => list.with_plugins_of(&dir, bytes)?,
            None => list.into_network(bytes),
        };
        if network.plugins.is_empty() {
            return Err(config_error(path, invalid(NO_PLUGINS.into())));
        }
        Ok(Self { path: Some(path.to_owned()), ..network })
    }

    /// Parses a list, or a single plugin, from memory. Only inlined plugins are included; there may be none.
    ///
    /// # Errors
    /// Code 6 if it is no JSON object, code 7 if a key is missing or wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, CniError> {
        let object = parse_object(bytes)?;
        // Only a single plugin has a `type` at the top level.
        if object.find("plugins").is_none() && object.find_in_any_case("type").is_some() {
            return Self::single(&object, bytes);
        }
        Ok(List::from_object(object)?.into_network(bytes.to_vec()))
    }

    /// Parses a single plugin's config, which names the network itself.
    ///
    /// # Errors
    /// As [`NetworkConf::parse`].
    pub fn parse_single(bytes: &[u8]) -> Result<Self, CniError> {
        Self::single(&parse_object(bytes)?, bytes)
    }

    fn single(object: &RawObject, bytes: &[u8]) -> Result<Self, CniError> {
        if object.find("plugins").is_some() && object.find_in_any_case("type").is_none() {
            return Err(invalid_at("plugins")(
                "key plugins has a list, and this file is read as one plugin's".to_owned(),
            )
            .detail("Files with a list of plugins are called *.conflist: rename it."));
        }
        let text = |key| {
            let decoded = decode::<String>(key, object.find_in_any_case(key)).map_err(invalid_at(key));
            decoded.map(Option::unwrap_or_default)
        };
        let (name, cni_version) = (text("name")?, text("cniVersion")?);
        let plugin = PluginObject::from_object(object.clone(), None)?;
        let mut list = ObjectWriter::new();
        list.text("name", &name);
        list.text("cniVersion", &cni_version);
        list.raw("plugins", &format!("[{}]", String::from_utf8_lossy(bytes).trim()));
        Ok(Self {
            name,
            cni_version,
            disable_check: false,
            disable_gc: false,
            log: log(object),
            plugins: vec![plugin],
            bytes: list.finish(),
            path: None,
        })
    }

    /// The file it was read from, if it was.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The same network under another name: some runtimes give a file without `name` the file's name. The cache keeps
    /// that name too.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        let object = RawObject::parse(&self.bytes).unwrap_or_default();
        let mut list = ObjectWriter::new();
        list.text("name", name);
        for (key, value) in object.iter().filter(|(key, _)| *key != "name") {
            list.raw(key, value.get());
        }
        self.bytes = list.finish();
        self.name = name.to_owned();
        self
    }

    /// The same network; one without a name gets that of its file, if it was read from one.
    #[must_use]
    pub fn named_by_file(self) -> Self {
        match self.path.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()) {
            Some(name) if self.name.is_empty() => self.named(&name),
            _ => self,
        }
    }

    /// What the plugin at `index` gets on stdin, without what a runtime adds for an attachment. `None`: there is no such
    /// plugin.
    #[must_use]
    pub fn plugin_conf(&self, index: usize) -> Option<Vec<u8>> {
        Some(stdin(self, self.plugins.get(index)?, &Added::default()))
    }

    /// The stdin of ADD of the plugin at `index`: the network's keys, the attachment's capability arguments and the result
    /// of the plugins before it, as JSON of the network's version. `None`: there is no such plugin.
    #[must_use]
    pub fn add_request(&self, index: usize, attachment: &RuntimeConf, prev_result: Option<&str>) -> Option<Vec<u8>> {
        let added = Added { prev_result, attachment: Some(attachment), ..Added::default() };
        Some(stdin(self, self.plugins.get(index)?, &added))
    }

    /// The name, checked because it becomes part of paths and rules.
    ///
    /// # Errors
    /// Code 7 if it is empty or has other characters than the specification allows.
    pub fn network_name(&self) -> Result<NetworkName, CniError> {
        NetworkName::parse(&self.name)
    }

    /// The version, which must be a known one.
    ///
    /// # Errors
    /// Code 1 naming it.
    pub fn version(&self) -> Result<SpecVersion, CniError> {
        SpecVersion::find(&self.cni_version).ok_or_else(|| {
            CniError::new(
                Code::INCOMPATIBLE_VERSION,
                format!("incompatible CNI versions: network {} has cniVersion {:?}", self.name, self.cni_version),
            )
            .detail(format!("Known are {}.", SpecVersion::ALL.map(SpecVersion::as_str).join(", ")))
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    plain_file::read(path).map_err(|source| Error::ReadConfig { path: path.to_owned(), source })
}

fn config_error(path: &Path, error: CniError) -> Error {
    Error::Config { path: Some(path.to_owned()), error }
}

fn invalid(reason: String) -> CniError {
    CniError::new(Code::INVALID_CONFIG, format!("cannot use network config: {reason}"))
}

/// An error about a key of the list.
fn invalid_at(key: &str) -> impl Fn(String) -> CniError {
    move |reason| invalid(reason).at_key(key)
}

fn parse_object(bytes: &[u8]) -> Result<RawObject, CniError> {
    let refused = |why: &dyn fmt::Display| CniError::new(Code::DECODING, format!("cannot parse network config: {why}"));
    // Of UTF-8, and of UTF-16 in either order.
    if [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| bytes.starts_with(mark)) {
        return Err(refused(&"it begins with a byte order mark").detail("Save it as UTF-8 without one."));
    }
    RawObject::parse(bytes).map_err(|error| refused(&error))
}

/// A list as in its file. Its top-level keys are exact-case, as the reference reads them.
struct List {
    object: RawObject,
    name: String,
    cni_version: String,
    disable_check: bool,
    disable_gc: bool,
    only_inlined: bool,
    plugins: Vec<PluginObject>,
}

impl List {
    fn parse(bytes: &[u8]) -> Result<Self, CniError> {
        Self::from_object(parse_object(bytes)?)
    }

    fn from_object(object: RawObject) -> Result<Self, CniError> {
        let name = decode("name", object.find("name")).map_err(invalid_at("name"))?;
        let name = name.ok_or_else(|| invalid("missing network name".into()))?;
        let only_inlined = flag(&object, "loadOnlyInlinedPlugins")?;
        let plugins = match object.find("plugins") {
            Some(plugins) => parse_plugins(plugins)?,
            None if only_inlined => {
                let reason = "key plugins is missing, and loadOnlyInlinedPlugins is true";
                return Err(invalid_at("plugins")(reason.to_owned()));
            }
            None => Vec::new(),
        };
        Ok(Self {
            name,
            cni_version: choose_version(&object)?,
            disable_check: flag(&object, "disableCheck")?,
            disable_gc: flag(&object, "disableGC")?,
            only_inlined,
            plugins,
            object,
        })
    }

    /// The folder with more plugins. An invalid name has no folder; ADD will refuse it.
    fn plugins_dir(&self, path: &Path) -> Option<PathBuf> {
        let name = NetworkName::parse(&self.name).ok().filter(|_| !self.only_inlined)?;
        Some(path.parent()?.join(name.as_str()))
    }

    fn with_plugins_of(self, dir: &Path, bytes: Vec<u8>) -> Result<NetworkConf, Error> {
        let files = conf_files(dir, &["conf"])?;
        if files.is_empty() {
            return Ok(self.into_network(bytes));
        }
        let mut texts = match self.object.find("plugins").map(|plugins| serde_json::from_str(plugins.get())) {
            Some(Ok(inlined)) => inlined,
            Some(Err(_)) | None => Vec::<Box<RawValue>>::new(),
        };
        let mut more = Vec::new();
        for path in files {
            let text: Box<RawValue> = json::parse_as(&read(&path)?).map_err(|error| {
                config_error(&path, CniError::new(Code::DECODING, format!("cannot parse plugin config: {error}")))
            })?;
            more.push(PluginObject::parse(&text, None).map_err(|error| config_error(&path, error))?);
            texts.push(text);
        }
        let bytes = self.inlining(&texts);
        let mut network = self.into_network(bytes);
        network.plugins.extend(more);
        Ok(network)
    }

    /// The list as one file that needs no folder, so that later readers of the cache have all of it.
    fn inlining(&self, plugins: &[Box<RawValue>]) -> Vec<u8> {
        let mut list = ObjectWriter::new();
        for (key, value) in self.object.iter().filter(|(key, _)| !matches!(*key, "plugins" | "loadOnlyInlinedPlugins"))
        {
            list.raw(key, value.get());
        }
        let texts: Vec<&str> = plugins.iter().map(|plugin| plugin.get()).collect();
        list.raw("loadOnlyInlinedPlugins", "true");
        list.raw("plugins", &format!("[{}]", texts.join(",")));
        list.finish()
    }

    fn into_network(self, bytes: Vec<u8>) -> NetworkConf {
        NetworkConf {
            name: self.name,
            cni_version: self.cni_version,
            disable_check: self.disable_check,
            disable_gc: self.disable_gc,
            log: log(&self.object),
            plugins: self.plugins,
            bytes,
            path: None,
        }
    }
}

fn parse_plugins(plugins: &RawValue) -> Result<Vec<PluginObject>, CniError> {
    let plugins: Vec<Box<RawValue>> = decode("plugins", Some(plugins))
        .map_err(invalid_at("plugins"))?
        .ok_or_else(|| invalid_at("plugins")("key plugins = null: want an array of plugin objects".to_owned()))?;
    if plugins.is_empty() {
        return Err(invalid(NO_PLUGINS.into()));
    }
    plugins.iter().enumerate().map(|(index, text)| PluginObject::parse(text, Some(index))).collect()
}

/// The key `log`. One that is no string is ignored: no network is unusable for its log.
fn log(object: &RawObject) -> Option<String> {
    decode("log", object.find("log")).ok().flatten()
}

/// A bool, also written as a string in any case.
fn flag(object: &RawObject, key: &str) -> Result<bool, CniError> {
    let Some(value) = object.find(key) else { return Ok(false) };
    let unquoted = value.get().trim_matches('"').to_ascii_lowercase();
    match unquoted.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid_at(key)(format!("key {key} = {}: want true or false", shown(value)))),
    }
}

/// The highest supported version among `cniVersions` and `cniVersion`; `cniVersion` as written if none is supported.
fn choose_version(object: &RawObject) -> Result<String, CniError> {
    let own: Option<String> = decode("cniVersion", object.find("cniVersion")).map_err(invalid_at("cniVersion"))?;
    let offered: Option<Vec<String>> =
        decode("cniVersions", object.find("cniVersions")).map_err(invalid_at("cniVersions"))?;
    let Some(mut offered) = offered else { return Ok(own.unwrap_or_default()) };
    offered.extend(own.clone());
    let latest = parse_number(SpecVersion::LATEST.as_str())?;
    let mut best = None;
    for text in offered {
        let number = parse_number(&text)?;
        if number <= latest && best.as_ref().is_none_or(|(highest, _)| number > *highest) {
            best = Some((number, text));
        }
    }
    Ok(best.map(|(_, text)| text).or(own).unwrap_or_default())
}
