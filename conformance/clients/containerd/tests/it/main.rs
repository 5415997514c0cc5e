//! containerd on our plugins: through `ctr run --cni`, and through CRI as a kubelet uses it.

mod cri;
mod ctr;
mod networks;
