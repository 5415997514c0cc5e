//! Packet sockets, in throwaway namespaces.

use std::cell::Cell;
use std::net::UdpSocket;
use std::task::Poll;

use netops::link::{self, Settings, Target};
use netops::packet::LinkUdp;
use netops::{Kernel, Netns};

const PORT: u16 = 68;

/// A flood would otherwise keep all other tasks of the thread from running.
#[test]
fn socket_that_is_never_empty_leaves_time_for_other_tasks() {
    let work = || {
        let up = Settings { up: Some(true), ..Settings::default() };
        let lo = link::set_and_get(&Kernel::host().unwrap(), &Target::named("lo"), &up).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let receiver = LinkUdp::open(&Netns::current().unwrap(), &lo, PORT).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..200 {
                sender.send_to(b"x", ("127.0.0.1", PORT)).unwrap();
            }
            let received = Cell::new(0);
            let all = async {
                while received.get() < 200 {
                    receiver.receive().await.unwrap();
                    received.set(received.get() + 1);
                }
            };
            let has_turn = std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if (1..200).contains(&received.get()) { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::select! {
                biased;
                () = all => panic!("no other task had a turn before the socket was empty"),
                () = has_turn => (),
            }
        });
    };
    Netns::run_in_new(work).unwrap();
}
