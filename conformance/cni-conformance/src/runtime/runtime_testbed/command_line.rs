//! The arguments and the environment that the runtime is started with.

use super::{CONF_DIR, Request, RuntimeTestbed, STALE, Variables};
use crate::finding::Stop;
use serde_json::Value;
use testns::Verb;

impl RuntimeTestbed {
    /// The variables that every process of the runtime has in its environment.
    pub(super) fn surroundings(&self) -> Variables {
        vec![
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOME".to_owned(), self.node.work_dir().display().to_string()),
        ]
    }

    /// Words and environment of a run.
    pub(super) fn line(&self, verb: Verb, request: &Request) -> Result<(Vec<String>, Variables), Stop> {
        let Some(template) = self.driver.verbs.get(&verb.to_string()) else {
            return Err(Stop::Skips(format!("{} has no {verb}", self.driver.name)));
        };
        let mut arguments = self.command.clone();
        for word in template {
            match word.contains("{keep}") {
                true => arguments.extend(request.keep.iter().map(|keep| word.replace("{keep}", keep))),
                false => arguments.push(self.filled(word, Some(request))),
            }
        }
        let mut environment = self.surroundings();
        for name in ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
            if !self.driver.environment.contains_key(name) {
                environment.push((name.to_owned(), STALE.to_owned()));
            }
        }
        let set = self.driver.environment.iter().map(|(name, value)| (name.clone(), self.filled(value, Some(request))));
        environment.extend(set.filter(|(_, value)| !value.is_empty()));
        Ok((arguments, environment))
    }

    /// A template with its placeholders filled in; without a request only those that are the same for all.
    pub(super) fn filled(&self, template: &str, request: Option<&Request>) -> String {
        let [first, second] = self.bin_dirs().map(|dir| dir.display().to_string());
        let work = self.node.work_dir().display().to_string();
        let mut values = vec![
            ("conf_dir", CONF_DIR.to_owned()),
            ("bin_dir", format!("{first}:{second}")),
            ("first_bin_dir", first),
            ("second_bin_dir", second),
            ("root", format!("{work}/root")),
            ("work_dir", work),
        ];
        if let Some(Request { network, attachment, args, capabilities, .. }) = request {
            let args: Vec<_> = args.iter().map(|(key, value)| format!("{key}={value}")).collect();
            values.extend([
                ("network", network.clone()),
                ("netns", attachment.netns.clone()),
                ("ifname", attachment.ifname.clone()),
                ("container", attachment.container_id.clone()),
                ("name", attachment.container_id.clone()),
                ("args", args.join(";")),
                ("capabilities", capabilities.as_ref().map(Value::to_string).unwrap_or_default()),
            ]);
        }
        let fill = |text: String, (name, value): &(&str, String)| text.replace(&format!("{{{name}}}"), value);
        values.iter().fold(template.to_owned(), fill)
    }
}
