//! The host-device plugin's keys.

use std::path::{Component, Path, PathBuf};

use cni_spec::{CniError, ConfObject, Dns, FromAnyConf, FromConf};
use interface::conf::{DnsKey, parse_mac};
use netops::link::{AnyName, Mac};
use serde::Deserialize;

const PCI_DEVICES: &str = "/sys/bus/pci/devices";
const AUXILIARY_DEVICES: &str = "/sys/bus/auxiliary/devices";

/// Drivers that give a PCI device to a program, so that it is no network interface of the kernel's.
const USERSPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conf {
    device: Option<AnyName>,
    mac: Option<Mac>,
    kernel_path: Option<PathBuf>,
    pci: Option<BusId>,
    /// `runtimeConfig.deviceID`: a PCI device, which replaces `pciBusID`, or an auxiliary one.
    device_id: Option<BusId>,
    /// Refuses a device that the node uses, instead of a warning.
    pub refuse_in_use: bool,
    /// Key `dns`, in place of IPAM's.
    pub dns: Option<Dns>,
}

/// A device's name on its bus: the name of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusId {
    key: &'static str,
    id: String,
}

/// How the config selects the device: the first key that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The device of this link name (`device`).
    Name(AnyName),
    /// The device of this Ethernet address (`hwaddr`).
    Mac(Mac),
    /// The interface of the device of this folder of sysfs (`kernelpath`).
    KernelPath(PathBuf),
    /// The interface of this PCI device.
    Pci(String),
    /// The interface of this auxiliary device (subfunctions).
    Auxiliary(String),
    /// No key names a device.
    None,
    /// `runtimeConfig.deviceID` is on neither bus.
    Unknown(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wire {
    device: String,
    hwaddr: String,
    kernelpath: String,
    #[serde(rename = "pciBusID")]
    pci_bus_id: String,
    refuse_in_use: bool,
    dns: DnsKey,
    runtime_config: RuntimeConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeConfig {
    #[serde(rename = "deviceID")]
    device_id: String,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        if wire.device == "lo" {
            let why = "it is the loopback link, which no container can have";
            return Err(CniError::invalid_key("device", "\"lo\"", why));
        }
        Ok(Self {
            device: link_name(&wire.device)?,
            mac: parse_mac("hwaddr", &wire.hwaddr)?,
            kernel_path: kernel_path(&wire.kernelpath)?,
            pci: BusId::parse("pciBusID", &wire.pci_bus_id)?,
            device_id: BusId::parse("runtimeConfig.deviceID", &wire.runtime_config.device_id)?,
            refuse_in_use: wire.refuse_in_use,
            dns: wire.dns.into_dns(),
        })
    }
}

/// What DEL uses of the config, for devices that the reference plugin moved: they have no record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removal(pub Conf);

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        let text = |keys: &[&str]| object.find::<String>(keys).unwrap_or_default();
        Self(Conf {
            device: object.unless_unread(link_name(&text(&["device"]))).flatten(),
            mac: object.unless_unread(parse_mac("hwaddr", &text(&["hwaddr"]))).flatten(),
            kernel_path: object.unless_unread(kernel_path(&text(&["kernelpath"]))).flatten(),
            pci: object.unless_unread(BusId::parse("pciBusID", &text(&["pciBusID"]))).flatten(),
            device_id: object
                .unless_unread(BusId::parse("runtimeConfig.deviceID", &text(&["runtimeConfig", "deviceID"])))
                .flatten(),
            refuse_in_use: false,
            dns: None,
        })
    }
}

impl Conf {
    pub fn selector(&self) -> Selector {
        if let Some(name) = &self.device {
            return Selector::Name(name.clone());
        }
        if let Some(mac) = self.mac {
            return Selector::Mac(mac);
        }
        if let Some(path) = &self.kernel_path {
            return Selector::KernelPath(path.clone());
        }
        match (self.find_pci(), &self.device_id) {
            (Some(pci), _) => Selector::Pci(pci.id.clone()),
            (None, Some(id)) if id.folder(AUXILIARY_DEVICES).exists() => Selector::Auxiliary(id.id.clone()),
            (None, Some(id)) => Selector::Unknown(id.id.clone()),
            (None, None) => Selector::None,
        }
    }

    /// Returns whether any key selects a device. The runtime adds `runtimeConfig.deviceID` to ADD, CHECK and DEL only.
    pub fn selects(&self) -> bool {
        self.selector() != Selector::None
    }

    /// Whether the PCI device belongs to a driver that gives it to a program: there is no link to move then.
    pub fn is_for_userspace(&self) -> bool {
        let driver = self.find_pci().and_then(|pci| pci.folder(PCI_DEVICES).join("driver").read_link().ok());
        let driver = driver.as_deref().and_then(Path::file_name);
        driver.is_some_and(|driver| USERSPACE_DRIVERS.iter().any(|name| driver == *name))
    }

    /// `runtimeConfig.deviceID` if it is a PCI device; `pciBusID` if that key is not set.
    fn find_pci(&self) -> Option<&BusId> {
        match &self.device_id {
            Some(id) => Some(id).filter(|id| id.folder(PCI_DEVICES).exists()),
            None => self.pci.as_ref(),
        }
    }
}

impl Selector {
    /// The folders of sysfs that list the device's network interfaces.
    pub fn folders(&self) -> Vec<PathBuf> {
        match self {
            Self::KernelPath(path) => vec![path.join("net")],
            Self::Auxiliary(id) => vec![Path::new(AUXILIARY_DEVICES).join(id).join("net")],
            Self::Pci(id) => {
                let device = Path::new(PCI_DEVICES).join(id);
                let mut folders = vec![device.join("net")];
                // A virtio device is a device of its own below the PCI one.
                let entries = std::fs::read_dir(&device).into_iter().flatten().flatten();
                let mut virtio: Vec<PathBuf> = entries
                    .filter(|entry| entry.file_name().to_string_lossy().starts_with("virtio"))
                    .map(|entry| entry.path().join("net"))
                    .collect();
                virtio.sort();
                folders.extend(virtio);
                folders
            }
            Self::Name(_) | Self::Mac(_) | Self::None | Self::Unknown(_) => Vec::new(),
        }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "device {name}"),
            Self::Mac(mac) => write!(f, "device with address {mac}"),
            Self::KernelPath(path) => write!(f, "network device of {}", path.display()),
            Self::Pci(id) => write!(f, "network device of PCI device {id}"),
            Self::Auxiliary(id) => write!(f, "network device of auxiliary device {id}"),
            Self::None => f.write_str("device"),
            Self::Unknown(id) => write!(f, "device {id}"),
        }
    }
}

impl BusId {
    fn parse(key: &'static str, id: &str) -> Result<Option<Self>, CniError> {
        if id.is_empty() {
            return Ok(None);
        }
        let mut parts = Path::new(id).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(name)), None) if name == id => Ok(Some(Self { key, id: id.to_owned() })),
            _ => Err(CniError::invalid_key(key, format_args!("{id:?}"), "it is no name of a device on a bus")),
        }
    }

    fn folder(&self, devices: &str) -> PathBuf {
        Path::new(devices).join(&self.id)
    }
}

fn link_name(text: &str) -> Result<Option<AnyName>, CniError> {
    if text.is_empty() {
        return Ok(None);
    }
    let name = AnyName::parse(text);
    name.map(Some).map_err(|error| CniError::invalid_key("device", format_args!("{text:?}"), &error.to_string()))
}

/// A folder below `/sys/devices`, which its name must say: `..` could lead elsewhere.
fn kernel_path(text: &str) -> Result<Option<PathBuf>, CniError> {
    if text.is_empty() {
        return Ok(None);
    }
    let path = Path::new(text);
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !is_plain || !path.starts_with("/sys/devices") || path == Path::new("/sys/devices") {
        let why = "it is no path below /sys/devices/";
        return Err(CniError::invalid_key("kernelpath", format_args!("{text:?}"), why));
    }
    Ok(Some(path.to_owned()))
}
