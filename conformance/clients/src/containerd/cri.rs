//! A kubelet's requests to a runtime.

use std::collections::HashMap;
use std::fs;

use crate::until;
use prost::Message;
use testns::Namespace;

use super::runtime_v1::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ExecSyncRequest, ExecSyncResponse, Id, ImageSpec,
    LinuxPodSandboxConfig, Nothing, Only, PodSandboxConfig, PodSandboxMetadata, PodSandboxStatus, RuntimeCondition,
    RuntimeStatus,
};
use super::{Channel, Daemon, IMAGE, Refusal};

/// containerd's namespace of what came through CRI.
const CRI_NAMESPACE: &str = "k8s.io";

#[derive(Debug)]
pub struct Cri<'daemon> {
    daemon: &'daemon Daemon,
    channel: Channel,
}

#[derive(Debug)]
pub struct Pod {
    /// The ID of the pod's sandbox, which plugins get as `CNI_CONTAINERID`.
    pub id: String,
    pub config: PodSandboxConfig,
}

impl<'daemon> Cri<'daemon> {
    pub fn connect(daemon: &'daemon Daemon) -> Self {
        let cri = Self { daemon, channel: Channel::open(&daemon.socket()) };
        // containerd says that it is ready before its CRI plugin is.
        until("the CRI plugin", || cri.runtime::<Only<RuntimeStatus>>("Status", &Nothing {}).ok());
        cri
    }

    /// Connects, and gives the runtime its images.
    pub fn with_images(daemon: &'daemon Daemon) -> Self {
        daemon.import_images(CRI_NAMESPACE);
        let cri = Self::connect(daemon);
        // The CRI plugin hears of imported images by containerd's own events.
        until("the images", || cri.has_image(IMAGE).then_some(()));
        until("the images", || cri.has_image(super::daemon::PAUSE).then_some(()));
        cri
    }

    fn runtime<A: Message + Default>(&self, method: &str, question: &impl Message) -> Result<A, Refusal> {
        self.channel.call(&format!("runtime.v1.RuntimeService/{method}"), question)
    }

    #[track_caller]
    fn must<A: Message + Default>(&self, method: &str, question: &impl Message) -> A {
        self.runtime(method, question).unwrap_or_else(|refusal| panic!("{method}: {refusal}"))
    }

    fn has_image(&self, name: &str) -> bool {
        let question = Only { message: Some(ImageSpec { image: name.to_owned() }) };
        let answer = self.channel.call::<Only<ImageSpec>>("runtime.v1.ImageService/ImageStatus", &question);
        answer.unwrap().message.is_some()
    }

    /// Whether the network is ready, and why not.
    pub fn network_ready(&self) -> RuntimeCondition {
        let answer: Only<RuntimeStatus> = self.must("Status", &Nothing {});
        let conditions = answer.message.unwrap_or_default().conditions;
        conditions.into_iter().find(|condition| condition.kind == "NetworkReady").unwrap()
    }

    pub fn try_run_pod(&self, config: PodSandboxConfig) -> Result<Pod, Refusal> {
        let question = Only { message: Some(config.clone()) };
        let answer: Id = self.runtime("RunPodSandbox", &question)?;
        Ok(Pod { id: answer.id, config })
    }

    #[track_caller]
    pub fn run_pod(&self, config: PodSandboxConfig) -> Pod {
        self.try_run_pod(config).unwrap_or_else(|refusal| panic!("RunPodSandbox: {refusal}"))
    }

    #[track_caller]
    pub fn status(&self, pod: &Pod) -> PodSandboxStatus {
        let answer: Only<PodSandboxStatus> = self.must("PodSandboxStatus", &Id { id: pod.id.clone() });
        answer.message.unwrap()
    }

    /// The pod's addresses, in the runtime's order.
    #[track_caller]
    pub fn addresses(&self, pod: &Pod) -> Vec<String> {
        let network = self.status(pod).network.unwrap_or_default();
        let others = network.additional_ips.into_iter().map(|other| other.ip);
        std::iter::once(network.ip).chain(others).collect()
    }

    #[track_caller]
    pub fn stop(&self, pod: &Pod) {
        let _: Nothing = self.must("StopPodSandbox", &Id { id: pod.id.clone() });
    }

    #[track_caller]
    pub fn remove(&self, pod: &Pod) {
        let _: Nothing = self.must("RemovePodSandbox", &Id { id: pod.id.clone() });
    }

    /// Starts a container of busybox in a pod; returns its ID.
    #[track_caller]
    pub fn start_container(&self, pod: &Pod, command: &[&str]) -> String {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".to_owned() }),
            image: Some(ImageSpec { image: IMAGE.to_owned() }),
            command: command.iter().map(ToString::to_string).collect(),
            log_path: "main.log".to_owned(),
        };
        let pod_sandbox_id = pod.id.clone();
        let sandbox_config = Some(pod.config.clone());
        let question = CreateContainerRequest { pod_sandbox_id, config: Some(config), sandbox_config };
        let container: Id = self.must("CreateContainer", &question);
        let _: Nothing = self.must("StartContainer", &container);
        container.id
    }

    #[track_caller]
    pub fn exec(&self, container_id: &str, command: &[&str]) -> String {
        let cmd = command.iter().map(ToString::to_string).collect();
        let question = ExecSyncRequest { container_id: container_id.to_owned(), cmd, timeout_s: 10 };
        let answer: ExecSyncResponse = self.must("ExecSync", &question);
        let (stdout, stderr) = (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
        assert_eq!(answer.exit_code, 0, "{command:?}: {stdout}{stderr}");
        stdout.into_owned()
    }

    #[track_caller]
    pub fn namespace(&self, pod: &Pod) -> Namespace {
        let tasks = self.daemon.run_ctr(&["--namespace", CRI_NAMESPACE, "task", "list"]);
        let line = tasks.stdout.lines().find(|line| line.starts_with(&pod.id));
        let pid = line.and_then(|line| line.split_whitespace().nth(1)).unwrap();
        Namespace::at(format!("/proc/{pid}/ns/net"))
    }
}

impl PodSandboxConfig {
    pub fn named(daemon: &Daemon, name: &str) -> Self {
        let log_directory = daemon.work_dir().join("logs").join(name);
        fs::create_dir_all(&log_directory).unwrap();
        Self {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "default".to_owned(),
            }),
            hostname: name.to_owned(),
            log_directory: log_directory.display().to_string(),
            dns_config: None,
            port_mappings: Vec::new(),
            annotations: HashMap::new(),
            linux: Some(LinuxPodSandboxConfig { cgroup_parent: "/pods".to_owned() }),
        }
    }
}
