//! The console over real sockets: who is answered, and what an action leaves in the log. `tests/browser/console.test.mjs`
//! looks at the page.

use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::http::{
    observation::until,
    server::{Answer, Client, Server},
};

const PASSWORD: &str = "of-operators";
const READ_ONLY: &str = "of-readers";

/// The field that only the console's page can set.
const FROM_PAGE: &str = "X-Dunlin-Console: 1\r\n";

fn start(admin: &Value) -> Server {
    let mut keys = json!({ "enabled": true, "password": PASSWORD, "read_only_password": READ_ONLY });
    keys.as_object_mut().expect("an object").extend(admin.as_object().expect("an object").clone());
    let settings = json!({
        "admin": keys,
        "channel": { "namespaces": [{
            "name": "open", "history_size": 10, "history_ttl": "1m", "allow_subscribe_for_client": true,
            "allow_subscribe_for_anonymous": true,
        }] },
    });
    Server::start(&settings)
}

/// Sends a request to the console with these further header fields.
fn ask_at(address: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> Answer {
    let mut client = Client::new(TcpStream::connect(address).expect("it listens"));
    let length = body.len();
    let host = if fields.starts_with("Host: ") { "" } else { "Host: console.example\r\n" };
    client.send(format!("{method} /admin/{path} HTTP/1.1\r\n{host}{fields}Content-Length: {length}\r\n\r\n{body}"));
    client.answer()
}

pub(super) fn ask(server: &Server, method: &str, path: &str, fields: &str, body: &str) -> Answer {
    ask_at(server.address, method, path, fields, body)
}

fn try_sign_in(server: &Server, password: &str) -> Answer {
    ask(server, "POST", "data/sign_in", FROM_PAGE, &json!({ "password": password }).to_string())
}

/// Signs in. Returns the fields of requests of the page.
pub(super) fn sign_in(server: &Server, password: &str) -> String {
    let answer = try_sign_in(server, password);
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.field("set-cookie").expect("a cookie").split(';').next().expect("a value");
    format!("{FROM_PAGE}Cookie: {cookie}\r\n")
}

fn command(server: &Server, fields: &str, method: &str, body: &Value) -> Answer {
    ask(server, "POST", &format!("data/api/{method}"), fields, &body.to_string())
}

#[test]
fn nothing_of_the_console_is_there_unless_it_is_enabled() {
    let server = Server::start(&json!({ "admin": { "password": PASSWORD, "insecure": true } }));
    for path in ["", "console.js", "console.css", "data/sign_in", "data/status", "data/api/info"] {
        assert_eq!(ask(&server, "GET", path, FROM_PAGE, "").status, 404, "{path}");
        assert_eq!(ask(&server, "POST", path, FROM_PAGE, "{}").status, 404, "{path}");
    }
    assert_eq!(server.ask("GET", "/admin", "").status, 404);
}

#[test]
fn the_console_is_on_the_internal_port_unless_it_is_external() {
    for is_external in [false, true] {
        let free = dunlin_processes::free_address().expect("a free port");
        let server = Server::start(&json!({
            "http_server": { "internal_port": free.port().to_string() },
            "admin": { "enabled": true, "password": PASSWORD, "external": is_external },
        }));
        let status = |address| ask_at(address, "GET", "", "", "").status;
        assert_eq!((status(server.address), status(free)), if is_external { (200, 404) } else { (404, 200) });
    }
}

#[test]
fn the_page_runs_only_its_own_script_in_no_frame() {
    let server = start(&json!({}));
    let moved = server.ask("GET", "/admin", "");
    assert_eq!((moved.status, moved.field("location")), (308, Some("admin/")));
    for path in ["", "console.js", "console.css", "data/sign_in"] {
        let answer = ask(&server, "GET", path, FROM_PAGE, "");
        assert_eq!(answer.status, 200, "{path}");
        let policy = answer.field("content-security-policy").expect("a policy");
        for wanted in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(wanted), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.field("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let page = ask(&server, "GET", "", "", "").text();
    assert!(!page.contains("<script>") && !page.contains(" onclick") && !page.contains(" style="), "{page}");
    let etag = ask(&server, "GET", "console.js", "", "").field("etag").expect("a tag").to_owned();
    assert_eq!(ask(&server, "GET", "console.js", &format!("If-None-Match: {etag}\r\n"), "").status, 304);
}

#[test]
fn without_a_sign_in_nothing_is_told_and_nothing_done() {
    let server = start(&json!({}));
    assert_eq!(ask(&server, "GET", "data/sign_in", FROM_PAGE, "").json(), json!({ "role": null }));
    for (path, method) in [
        ("data/status", "GET"),
        ("data/configuration", "GET"),
        ("data/log", "GET"),
        ("data/channels", "POST"),
        ("data/sign_out", "POST"),
        ("data/api/info", "POST"),
        ("data/api/publish", "POST"),
        ("data/api/unknown", "POST"),
        ("data/unknown", "GET"),
    ] {
        assert_eq!(ask(&server, method, path, FROM_PAGE, "{}").status, 401, "{path}");
        let forged = format!("{FROM_PAGE}Cookie: dunlin_console=operator.9999999999.0.AAAA\r\n");
        assert_eq!(ask(&server, method, path, &forged, "{}").status, 401, "{path}");
    }
}

#[test]
fn the_cookie_is_for_this_site_and_no_script_and_ends_at_the_sign_out() {
    let server = start(&json!({}));
    let answer = try_sign_in(&server, PASSWORD);
    let cookie = answer.field("set-cookie").expect("a cookie").to_owned();
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/admin/", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("; Secure"), "there is no TLS");
    let proxied = format!("{FROM_PAGE}X-Forwarded-Proto: https\r\n");
    let body = json!({ "password": PASSWORD }).to_string();
    let answer = ask(&server, "POST", "data/sign_in", &proxied, &body);
    assert!(answer.field("set-cookie").expect("a cookie").ends_with("; Secure"));

    let fields = sign_in(&server, PASSWORD);
    let signed_in = ask(&server, "GET", "data/sign_in", &fields, "").json();
    assert_eq!(signed_in["role"], "operator");
    assert_eq!(ask(&server, "GET", "data/status", &fields, "").status, 200);
    let answer = ask(&server, "POST", "data/sign_out", &fields, "{}");
    assert!(answer.field("set-cookie").expect("a cookie").starts_with("dunlin_console=; Max-Age=0;"));
    assert_eq!(ask(&server, "GET", "data/status", &fields, "").status, 401, "a stolen copy has ended as well");
}

#[test]
fn wrong_passwords_are_bounded_and_logged() {
    let mut server = start(&json!({ "sign_in_limit": 3 }));
    for password in ["", "of-operator", "of-operators "] {
        let answer = try_sign_in(&server, password);
        assert_eq!((answer.status, answer.field("set-cookie")), (403, None), "{password}");
    }
    assert_eq!(try_sign_in(&server, PASSWORD).status, 429, "also the right one");
    assert_eq!(server.logged("console: wrong password")["address"], "127.0.0.1");
    assert!(server.metric("dunlin_http_refused_total{reason=\"sign_in\"}") >= 4.0);
    let long = |bytes: usize| {
        let body = json!({ "password": "x".repeat(bytes) }).to_string();
        ask(&server, "POST", "data/sign_in", FROM_PAGE, &body).status
    };
    // With the field's name and the quotes, the body has 15 bytes more.
    assert_eq!((long(4_096 - 15), long(4_096 - 14)), (429, 413), "at the limit of the body, and one past it");
    for body in ["", "[]", "{}", r#"{"password":1}"#] {
        assert_eq!(ask(&server, "POST", "data/sign_in", FROM_PAGE, body).status, 400, "{body}");
    }
}

#[test]
fn a_sign_in_ends_after_its_lifetime() {
    let server = start(&json!({ "sign_in_lifetime": "1s" }));
    let fields = sign_in(&server, READ_ONLY);
    let ended = || ask(&server, "GET", "data/status", &fields, "").status == 401;
    let deadline = std::time::Instant::now() + crate::http::server::PATIENCE;
    while !ended() {
        assert!(std::time::Instant::now() < deadline, "the sign-in does not end");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn requests_of_other_sites_are_refused() {
    let server = start(&json!({}));
    let fields = sign_in(&server, PASSWORD);
    let cookie = fields.strip_prefix(FROM_PAGE).expect("the page's field is first");
    let publish = json!({ "channel": "open:1", "data": 1 });
    for foreign in [
        // A form of another site cannot set the field.
        cookie.to_owned(),
        format!("{cookie}Content-Type: text/plain\r\n"),
        format!("{fields}Origin: http://evil.example\r\n"),
        format!("{fields}Origin: null\r\n"),
        format!("{fields}Sec-Fetch-Site: cross-site\r\n"),
        format!("{fields}Sec-Fetch-Site: same-site\r\nOrigin: http://console.example\r\n"),
    ] {
        assert_eq!(command(&server, &foreign, "publish", &publish).status, 403, "{foreign}");
        assert_eq!(ask(&server, "GET", "data/status", &foreign, "").status, 403, "{foreign}");
        let body = json!({ "password": PASSWORD }).to_string();
        assert_eq!(ask(&server, "POST", "data/sign_in", &foreign, &body).status, 403, "{foreign}");
    }
    let own = format!("{fields}Sec-Fetch-Site: same-origin\r\nOrigin: http://console.example\r\n");
    let published = command(&server, &own, "publish", &publish).json();
    assert_eq!(published["result"]["offset"], 1, "the others have published nothing");
    let preflight = ask(&server, "OPTIONS", "data/api/publish", "Origin: http://evil.example\r\n", "");
    assert_eq!((preflight.status, preflight.field("access-control-allow-origin")), (403, None));
}

#[test]
fn a_reader_sees_everything_and_changes_nothing() {
    let server = start(&json!({}));
    let fields = sign_in(&server, READ_ONLY);
    for (method, body) in [
        ("info", json!({})),
        ("sessions", json!({})),
        ("explain", json!({})),
        ("room_list", json!({})),
        ("history", json!({ "channel": "open:1" })),
    ] {
        let answer = command(&server, &fields, method, &body);
        assert_eq!(answer.status, 200, "{method}");
        assert!(answer.json()["result"].is_object(), "{method}: {answer:?}");
    }
    for method in ["publish", "history_remove", "disconnect", "unsubscribe", "room_kick", "room_lock", "room_close"] {
        let body = json!({ "channel": "open:1", "data": 1, "user": "u" });
        assert_eq!(command(&server, &fields, method, &body).status, 403, "{method}");
    }
    let history = command(&server, &fields, "history", &json!({ "channel": "open:1", "limit": 1 })).json();
    assert_eq!(history["result"]["offset"], 0, "nothing was published");
}

#[test]
fn only_what_the_page_needs_is_offered() {
    let server = start(&json!({}));
    let fields = sign_in(&server, PASSWORD);
    for method in ["broadcast", "batch", "subscribe", "refresh", "room_open", "match", "rpc", "nothing"] {
        assert_eq!(command(&server, &fields, method, &json!({})).status, 404, "{method}");
    }
    assert_eq!(ask(&server, "GET", "data/api/info", &fields, "").status, 405);
    let malformed = command(&server, &fields, "publish", &json!({ "channel": 1 }));
    assert_eq!((malformed.status, malformed.text().contains("the field \"channel\"")), (400, true));
}

#[test]
fn an_action_leaves_a_line_with_who_and_what_and_from_where() {
    let mut server = start(&json!({}));
    let fields = sign_in(&server, PASSWORD);
    let signed_in = server.logged("console: signed in");
    assert_eq!((&signed_in["role"], &signed_in["address"]), (&json!("operator"), &json!("127.0.0.1")));
    command(&server, &fields, "publish", &json!({ "channel": "open:<b>\n", "data": { "secret": "payload" } }));
    let line = server.logged("console: action");
    assert_eq!(
        (&line["action"], &line["role"], &line["outcome"]),
        (&json!("publish"), &json!("operator"), &json!("done"))
    );
    assert_eq!(
        line["target"], r#"channel="open:<b>\n""#,
        "control characters are escaped, and the payload is not there"
    );
    assert_eq!((&line["sign_in"], &line["address"]), (&signed_in["sign_in"], &json!("127.0.0.1")));
    command(&server, &fields, "history_remove", &json!({ "channel": "unknown:1" }));
    assert_eq!(server.logged("console: action")["outcome"], "unknown channel");
    let tail = ask(&server, "GET", "data/log?since=0", &fields, "").json();
    let lines = tail["lines"].as_array().expect("lines");
    assert!(lines.iter().any(|line| line.as_str().is_some_and(|line| line.contains("history_remove"))), "{tail}");
    let next = tail["next"].as_u64().expect("a number");
    assert_eq!(ask(&server, "GET", &format!("data/log?since={next}"), &fields, "").json()["lines"], json!([]));
    assert_eq!(ask(&server, "GET", "data/log?since=x", &fields, "").status, 400);
    // The page of a node that has ended meanwhile.
    let anew = ask(&server, "GET", &format!("data/log?since={next}&run=earlier"), &fields, "").json();
    assert_eq!((&anew["run"], anew["lines"].as_array().map(Vec::len)), (&tail["run"], Some(lines.len())));
}

#[test]
fn an_action_leaves_a_line_whatever_the_level_of_the_log_is() {
    let mut server = start(&json!({}));
    let fields = sign_in(&server, PASSWORD);
    for level in ["error", "none"] {
        server.rewrite(|config| config["log"] = json!({ "level": level }));
        server.signal("HUP");
        let shown = || ask(&server, "GET", "data/configuration", &fields, "").json()["settings"].clone();
        let is_applied = |settings: &Value| {
            settings.as_array().expect("a list").iter().any(|one| one["key"] == "log.level" && one["value"] == level)
        };
        until(|| is_applied(&shown()));
        command(&server, &fields, "publish", &json!({ "channel": format!("open:{level}"), "data": 1 }));
        let line = server.logged("console: action");
        assert_eq!(line["target"], format!("channel=\"open:{level}\""));
    }
    sign_in(&server, READ_ONLY);
    assert_eq!(server.logged("console: signed in")["role"], "reader");
}

#[test]
fn requests_of_the_console_count_towards_the_limit_on_concurrent_ones_until_they_are_answered() {
    let server = Server::start(&json!({
        "admin": { "enabled": true, "password": PASSWORD },
        "http_api": { "requests_limit": 1, "timeout": "20s" },
    }));
    let fields = sign_in(&server, PASSWORD);
    let info = || command(&server, &fields, "info", &json!({})).status;
    assert_eq!(info(), 200);
    for path in ["data/channels", "data/api/info", "data/api/publish"] {
        let mut slow = Client::new(TcpStream::connect(server.address).expect("it listens"));
        // The node asks for the body once the request has its place. It stays away.
        let expects = format!("{fields}Expect: 100-continue\r\nContent-Length: 2\r\n");
        slow.send(format!("POST /admin/{path} HTTP/1.1\r\nHost: console.example\r\n{expects}\r\n"));
        assert_eq!((slow.status(), &*slow.line()), (100, ""), "{path}");
        assert_eq!(info(), 503, "{path}");
        assert_eq!(ask(&server, "GET", "data/status", &fields, "").status, 503, "{path}");
        assert_eq!(ask(&server, "POST", "data/channels", &fields, "{}").status, 503, "{path}");
        assert_eq!(server.ask("POST", "/api/info", "{}").status, 503, "{path}");
        assert_eq!(ask(&server, "GET", "data/log", &fields, "").status, 200, "the log costs little");
        slow.send("{}");
        assert!(matches!(slow.answer().status, 200 | 400), "{path}");
        until(|| info() == 200);
    }
    assert_eq!(ask(&server, "GET", "data/status", &fields, "").status, 200);
}

#[test]
fn a_reload_changes_the_password_and_ends_the_sign_ins_with_the_old_one() {
    let server = start(&json!({ "sign_in_limit": 1000 }));
    let fields = sign_in(&server, PASSWORD);
    server.rewrite(|config| {
        config["admin"]["password"] = json!("changed");
        config["admin"]["handler_prefix"] = json!("/elsewhere");
    });
    server.signal("HUP");
    until(|| try_sign_in(&server, "changed").status == 200);
    assert_eq!(try_sign_in(&server, PASSWORD).status, 403);
    assert_eq!(ask(&server, "GET", "data/status", &fields, "").status, 401, "a sign-in with the leaked password");
    let fields = sign_in(&server, "changed");
    let shown = ask(&server, "GET", "data/configuration", &fields, "").json();
    let has = |key: &str| shown["settings"].as_array().expect("a list").iter().any(|setting| setting["key"] == key);
    assert!(has("admin.password") && !has("admin.handler_prefix"), "the path waits for a restart: {shown}");
}

#[test]
fn an_insecure_console_needs_no_password_but_still_its_page() {
    let server = start(&json!({ "insecure": true }));
    let fields = format!("Host: {}\r\n{FROM_PAGE}", server.address);
    assert_eq!(ask(&server, "GET", "data/sign_in", &fields, "").json()["role"], "operator");
    let publish = json!({ "channel": "open:1", "data": 1 });
    assert_eq!(command(&server, &fields, "publish", &publish).status, 200);
    assert_eq!(command(&server, "Host: localhost\r\n", "publish", &publish).status, 403);
    let body = json!({ "password": PASSWORD }).to_string();
    assert_eq!(ask(&server, "POST", "data/sign_in", &fields, &body).status, 400);
}

#[test]
fn a_site_that_gives_its_name_the_address_of_an_insecure_console_is_refused() {
    let server = start(&json!({ "insecure": true }));
    let port = server.address.port();
    // What a browser sends for the page of such a site.
    let rebound = format!(
        "Host: evil.example:{port}\r\n{FROM_PAGE}Origin: http://evil.example:{port}\r\nSec-Fetch-Site: same-origin\r\n"
    );
    let publish = json!({ "channel": "open:1", "data": 1 });
    assert_eq!(command(&server, &rebound, "publish", &publish).status, 403);
    assert_eq!(ask(&server, "GET", "data/status", &rebound, "").status, 403);
    assert_eq!(ask(&server, "GET", "data/sign_in", &rebound, "").status, 403);
    let own = rebound.replace("evil.example", "localhost");
    assert_eq!(command(&server, &own, "publish", &publish).json()["result"]["offset"], 1, "the first one");
}

#[test]
fn the_configuration_is_shown_without_secrets() {
    let server = start(&json!({ "secret": "signs-cookies" }));
    let fields = sign_in(&server, READ_ONLY);
    let answer = ask(&server, "GET", "data/configuration", &fields, "");
    let text = answer.text();
    for secret in [PASSWORD, READ_ONLY, "signs-cookies", crate::http::server::KEY] {
        assert!(!text.contains(secret), "{text}");
    }
    let settings = answer.json()["settings"].clone();
    let setting = |key: &str| settings.as_array().expect("a list").iter().find(|one| one["key"] == key).cloned();
    assert_eq!(setting("admin.password"), Some(json!({ "key": "admin.password", "value": null, "hidden": true })));
    let size = "channel.namespaces[open].history_size";
    assert_eq!(setting(size), Some(json!({ "key": size, "value": 10, "hidden": false })));
}

#[test]
fn channels_are_found_and_paged() {
    let server = start(&json!({}));
    let mut session = server.open_session();
    for (id, channel) in ["open:one", "open:two", "open:<img src=x>"].into_iter().enumerate() {
        session.send_text(&json!({ "id": id + 2, "subscribe": { "channel": channel } }).to_string());
        session.frame();
    }
    let fields = sign_in(&server, READ_ONLY);
    let found = |wanted: &Value| ask(&server, "POST", "data/channels", &fields, &wanted.to_string()).json();
    let all = found(&json!({}));
    assert_eq!((&all["result"]["total"], &all["result"]["more"]), (&json!(3), &Value::Null));
    let one = json!([{ "channel": "open:<img src=x>", "num_clients": 1 }]);
    assert_eq!(found(&json!({ "find": "<img" }))["result"]["channels"], one);
    let last = json!([{ "channel": "open:two", "num_clients": 1 }]);
    assert_eq!(found(&json!({ "cursor": "open:one" }))["result"]["channels"], last);
    assert_eq!(found(&json!({ "cursor": "open:two" }))["result"]["channels"], json!([]));
    let largest = found(&json!({ "largest": true, "find": "o" }))["result"].clone();
    assert_eq!((largest["channels"].as_array().map(Vec::len), &largest["missing_up_to"]), (Some(3), &Value::Null));
    assert_eq!(ask(&server, "POST", "data/channels", &fields, r#"{"other":1}"#).status, 400);
}

#[test]
fn the_state_of_the_node_counts_what_has_happened() {
    let server = start(&json!({}));
    let mut session = server.open_session();
    session.send_text(r#"{"id":2,"subscribe":{"channel":"open:1"}}"#);
    session.frame();
    let fields = sign_in(&server, PASSWORD);
    command(&server, &fields, "publish", &json!({ "channel": "open:1", "data": 1 }));
    session.frame();
    let state = ask(&server, "GET", "data/status", &fields, "").json()["result"].clone();
    assert_eq!(state["missing"], json!([]));
    let node = &state["nodes"][0];
    assert_eq!((&node["sessions"]["open"], &node["traffic"]["publications"]), (&json!(1), &json!(1)));
    assert_eq!(node["traffic"]["deliveries"], 1);
    assert_eq!(node["shards"].as_array().map(Vec::len), Some(2));
    assert_eq!((&node["storage"], &node["cluster"]), (&Value::Null, &Value::Null));
}

on_io_uring![
    nothing_of_the_console_is_there_unless_it_is_enabled,
    the_console_is_on_the_internal_port_unless_it_is_external,
    the_page_runs_only_its_own_script_in_no_frame,
    without_a_sign_in_nothing_is_told_and_nothing_done,
    the_cookie_is_for_this_site_and_no_script_and_ends_at_the_sign_out,
    wrong_passwords_are_bounded_and_logged,
    a_sign_in_ends_after_its_lifetime,
    requests_of_other_sites_are_refused,
    a_reader_sees_everything_and_changes_nothing,
    only_what_the_page_needs_is_offered,
    an_action_leaves_a_line_with_who_and_what_and_from_where,
    an_action_leaves_a_line_whatever_the_level_of_the_log_is,
    requests_of_the_console_count_towards_the_limit_on_concurrent_ones_until_they_are_answered,
    a_reload_changes_the_password_and_ends_the_sign_ins_with_the_old_one,
    an_insecure_console_needs_no_password_but_still_its_page,
    a_site_that_gives_its_name_the_address_of_an_insecure_console_is_refused,
    the_configuration_is_shown_without_secrets,
    channels_are_found_and_paged,
    the_state_of_the_node_counts_what_has_happened,
];
