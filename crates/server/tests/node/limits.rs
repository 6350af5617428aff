//! A node that has run out of file descriptors.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use dunlin_net::ReactorOption;

use crate::{
    each_reactor,
    node::{
        client::Client,
        rig::{Rig, wait_until},
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
    let rig = Rig::simple();
    println!("\nlistening={}", rig.address());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent ends the wait");
    println!("\nout_of_files={}", rig.count(|net| net.accepts_out_of_files));
}

on_io_uring![a_node_out_of_file_descriptors_sheds_clients_and_recovers,];
