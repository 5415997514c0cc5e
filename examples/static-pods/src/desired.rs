//! The pods that the folder of manifests requests.

use crate::manifest::{self, Key, Manifest};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A requested pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) manifest: Arc<Manifest>,
    /// Name of the file it is in.
    pub(crate) file: String,
}

/// A reading of the folder.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Desired {
    /// In the order of the files' names, then of the documents.
    pub(crate) pods: Vec<Wanted>,
    /// Errors, by file.
    pub(crate) problems: BTreeMap<String, Vec<String>>,
    /// Files that could not be read completely: their earlier pods stay as they are, so that a typing error removes no
    /// running pod.
    pub(crate) broken: BTreeSet<String>,
}

/// Reads the folder. One that does not exist asks for nothing, as in a kubelet.
///
/// # Errors
/// The folder exists and cannot be listed: then it is unknown which pods are wanted.
pub(crate) fn read(dir: &Path) -> io::Result<Desired> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Desired::default()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // A name that is no text has none of our endings.
        names.extend(entry?.file_name().into_string().ok().filter(|name| is_manifest(name)));
    }
    names.sort();
    let mut desired = Desired::default();
    for name in names {
        match fs::read(dir.join(&name)) {
            Ok(bytes) => desired.add(&name, &bytes),
            // The file was deleted after the listing, and its pods are no longer wanted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => desired.broken(&name, format!("cannot read it: {error}")),
        }
    }
    Ok(desired)
}

/// Editors' and Kubernetes' own files (`.web.yaml.swp`, `..data`, `web.yaml~`) are none.
fn is_manifest(name: &str) -> bool {
    !name.starts_with('.') && [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

impl Desired {
    fn add(&mut self, file: &str, bytes: &[u8]) {
        for document in manifest::parse(bytes) {
            match document {
                Ok(manifest) => match self.find(&manifest.key) {
                    Some(first) if first.file == file => {
                        self.problem(file, format!("pod {} is in it twice: the first counts", manifest.key));
                    }
                    Some(first) => {
                        let text = format!("pod {} is in {} already, which counts", manifest.key, first.file);
                        self.problem(file, text);
                    }
                    None => self.pods.push(Wanted { manifest: Arc::new(manifest), file: file.to_owned() }),
                },
                Err(problem) => self.broken(file, problem.to_string()),
            }
        }
    }

    /// The pod of this namespace and name.
    pub(crate) fn find(&self, key: &Key) -> Option<&Wanted> {
        self.pods.iter().find(|wanted| wanted.manifest.key == *key)
    }

    fn problem(&mut self, file: &str, text: String) {
        self.problems.entry(file.to_owned()).or_default().push(text);
    }

    fn broken(&mut self, file: &str, text: String) {
        self.broken.insert(file.to_owned());
        self.problem(file, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> String {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n")
    }

    #[test]
    fn files_count_in_the_order_of_their_names() {
        let dir = std::env::temp_dir().join(format!("static-pods-desired-{}", std::process::id()));
        fs::create_dir_all(dir.join("folder.yaml")).unwrap();
        let files = [
            ("b.yaml", pod("web")),
            ("a.yml", format!("{}---\n{}---\n{}", pod("web"), pod("other"), pod("other"))),
            ("c.json", "{".to_owned()),
            (".hidden.yaml", pod("hidden")),
            ("web.yaml~", pod("old")),
        ];
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
        let desired = read(&dir).unwrap();
        let pods: Vec<_> = desired.pods.iter().map(|pod| (pod.file.as_str(), pod.manifest.key.name.as_str())).collect();
        assert_eq!(pods, [("a.yml", "web"), ("a.yml", "other")]);
        assert_eq!(desired.problems["a.yml"], ["pod default/other is in it twice: the first counts"]);
        assert_eq!(desired.problems["b.yaml"], ["pod default/web is in a.yml already, which counts"]);
        assert!(desired.problems["folder.yaml"][0].contains("cannot read it: Is a directory"), "{desired:?}");
        assert_eq!(desired.broken.iter().collect::<Vec<_>>(), ["c.json", "folder.yaml"]);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(read(&dir).unwrap(), Desired::default());
    }
}
