//! containerd on our plugins: through `ctr run --cni`, and through CRI as a kubelet uses it.

mod networks;

mod cri;
mod ctr;
mod failures;
mod installer;
mod pod_arguments;
mod removal;
