//! A node that has run out of file descriptors, or of places for connections.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use dunlin::node::NodeNetOptions;
use dunlin_net::ReactorOption;

use crate::{
    each_reactor,
    node::{
        client::Client,
        rig::{Rig, engine_options, net_options, wait_until},
    },
};

/// The environment variable that is set in the child process with few file descriptors.
const IS_CHILD: &str = "DUNLIN_TEST_FEW_FILES";

/// More connections than the child may have open files.
const CLIENTS: usize = 100;

/// Runs this test again in a child process with a limit of 48 files, and acts as the client of the child's node.
#[test]
fn a_node_out_of_file_descriptors_sheds_clients_and_recovers() {
    if env::var_os(IS_CHILD).is_some() {
        return serve_with_few_files();
    }
    let this_test = match each_reactor::current() {
        ReactorOption::IoUring => {
            "node::limits::on_io_uring::a_node_out_of_file_descriptors_sheds_clients_and_recovers"
        }
        _ => "node::limits::a_node_out_of_file_descriptors_sheds_clients_and_recovers",
    };
    let mut child = Command::new("sh")
        .args(["-c", r#"ulimit -n 48 && exec "$0" "$@""#])
        .arg(env::current_exe().expect("this test"))
        .args([this_test, "--exact", "--nocapture", "--test-threads=1"])
        .env(IS_CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let mut value_of = move |name: &str| -> String {
        let value = lines.find_map(|line| line.split_once(name).map(|(_, value)| value.trim().to_owned()));
        value.expect("the child prints it")
    };
    let address = value_of("listening=").parse().expect("an address");

    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    // The last connections are closed instead of left waiting.
    let shed = clients.iter_mut().rev().take(CLIENTS - 48).map(Client::read_to_end);
    for end in shed {
        assert_eq!(end, "", "a connection that is dropped receives nothing");
    }
    // Accepted connections are served as usual.
    let first = clients.first_mut().expect("there are some");
    first.write(crate::node::client::upgrade_request("").as_bytes());
    assert!(first.read_head().starts_with("HTTP/1.1 101 "));
    drop(clients);
    wait_until("the node to take clients again", || {
        let mut client = Client::connect(address);
        client.try_write(crate::node::client::upgrade_request("").as_bytes()).is_ok()
            && client.try_read_status().is_some_and(|status| status == "101")
    });

    child.stdin.take().expect("piped").write_all(b"enough\n").expect("the child lives");
    let shed: u64 = value_of("out_of_files=").parse().expect("a number");
    assert!(shed >= (CLIENTS - 48) as u64, "{shed}");
    assert!(child.wait().expect("the child ends").success());
}

fn serve_with_few_files() {
    let rig = Rig::start(NodeNetOptions { shard_connections_max: 0, ..net_options() }, engine_options());
    println!("\nlistening={}", rig.address());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent ends the wait");
    println!("\nout_of_files={}", rig.count(|net| net.accepts_out_of_files));
}

/// Direct descriptors have a limit for each shard. Without them, only the number of files is limited.
#[test]
fn one_connection_more_than_the_shards_have_places_for_is_closed() {
    const PLACES: u32 = 4;
    let net = NodeNetOptions { shard_count: 2, shard_connections_max: PLACES, ..net_options() };
    let rig = Rig::start(net, engine_options());
    let has_limit = each_reactor::current() == ReactorOption::IoUring;
    assert_eq!(rig.node.reactor().connections_max, has_limit.then_some(PLACES));
    assert_eq!(rig.count(|net| net.connections_max), if has_limit { 8 } else { 0 });
    // Wherever the kernel puts them, both shards become full.
    let mut sessions: Vec<Client> = (0..8).map(|_| Client::session(rig.address())).collect();
    assert_eq!(rig.count(|net| net.connections), 8);
    let mut ninth = Client::connect(rig.address());
    if !has_limit {
        ninth.write(crate::node::client::upgrade_request("").as_bytes());
        assert!(ninth.read_head().starts_with("HTTP/1.1 101 "));
        return;
    }
    assert_eq!(ninth.read_to_end(), "");
    assert_eq!(rig.count(|net| net.accepts_shard_full), 1);
    assert_eq!(rig.count(|net| net.accepts_out_of_files + net.accepts_reserved + net.accepts_failed), 0);
    // Whoever leaves makes room for one more, many times.
    for round in 0..3 * 8 {
        drop(sessions.remove(0));
        wait_until("the place to be free", || rig.count(|net| net.connections) == 7);
        sessions.push(Client::session(rig.address()));
        assert_eq!(rig.count(|net| net.accepts_shard_full), 1, "{round}");
    }
}

on_io_uring![
    a_node_out_of_file_descriptors_sheds_clients_and_recovers,
    one_connection_more_than_the_shards_have_places_for_is_closed,
];
