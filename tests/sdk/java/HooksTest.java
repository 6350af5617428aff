package sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static sdk.Server.answers;
import static sdk.Server.asked;
import static sdk.Server.assertJson;
import static sdk.Server.channelIn;
import static sdk.Server.hooksApi;
import static sdk.Server.hooksUrl;
import static sdk.Server.inSeconds;
import static sdk.Server.json;
import static sdk.Server.newUser;

import io.github.centrifugal.centrifuge.ClientState;
import io.github.centrifugal.centrifuge.ConnectedEvent;
import io.github.centrifugal.centrifuge.ConnectingEvent;
import io.github.centrifugal.centrifuge.DisconnectedEvent;
import io.github.centrifugal.centrifuge.HistoryOptions;
import io.github.centrifugal.centrifuge.HistoryResult;
import io.github.centrifugal.centrifuge.PublicationEvent;
import io.github.centrifugal.centrifuge.PublishResult;
import io.github.centrifugal.centrifuge.RPCResult;
import io.github.centrifugal.centrifuge.ResultCallback;
import io.github.centrifugal.centrifuge.ServerPublicationEvent;
import io.github.centrifugal.centrifuge.ServerSubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribingEvent;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class HooksTest extends Scenario {
    private static final Map<?, ?> FAILED = Map.of("status", 500);

    private static Map<?, ?> ok(Map<String, ?> fields) {
        return Map.of("result", fields);
    }

    private static Map<?, ?> failure(int code) {
        return Map.of("error", Map.of("code", code, "message", "no"));
    }

    private static Map<?, ?> goodbye(int code) {
        return Map.of("disconnect", Map.of("code", code, "reason", "go"));
    }

    /** Creates a client without connecting it; the backend gives this answer to its connect. */
    private Session visitor(String user, Map<?, ?>... all) {
        answers("connect", user, all);
        return again(user);
    }

    private Session again(String user) {
        return client(hooksUrl(), options -> {
            options.setData(json(Map.of("about", user)));
            options.setName("tests");
            options.setVersion("7");
        });
    }

    /** Creates a client that the backend accepts as this user, with these additional fields in the result. */
    private Session entered(String user, Map<String, ?> fields) {
        var all = new HashMap<String, Object>(fields);
        all.put("user", user);
        return visitor(user, ok(all)).connect();
    }

    private Session entered(String user) {
        return entered(user, Map.of());
    }

    @Test
    void theConnectHookIsAskedWhoComesAndSaysIt() {
        String user = newUser();
        String channel = channelIn("open");
        var session = visitor(user, ok(Map.of(
                "user", user, "info", Map.of("name", "Ann"), "data", Map.of("welcome", 1), "channels", List.of(channel))));
        session.client.connect();
        var connected = session.events.next(ConnectedEvent.class);
        assertJson(Map.of("welcome", 1), connected.getData());
        var seen = new HashSet<String>();
        for (int i = 0; i < 2; i++) {
            seen.add(session.events.next(ServerSubscribedEvent.class).getChannel());
        }
        assertEquals(java.util.Set.of(channel, "personal:#" + user), seen);
        var client = Map.of("client", connected.getClient(), "user", user, "conn_info", Map.of("name", "Ann"));
        assertJson(Map.of("presence", Map.of(connected.getClient(), client)), hooksApi("presence", Map.of("channel", channel)));
        hooksApi("publish", Map.of("channel", channel, "data", Map.of("n", 1)));
        assertJson(Map.of("n", 1), session.events.next(ServerPublicationEvent.class).getData());
        assertJson(
                Map.of("client", connected.getClient(), "transport", "websocket", "protocol", "protobuf", "encoding", "json",
                        "data", Map.of("about", user), "name", "tests", "version", "7"),
                asked("connect", user, 1).get(0));
    }

    static List<Arguments> ends() {
        return List.of(
                Arguments.of("an error", failure(1000), 1000),
                Arguments.of("a disconnect", goodbye(4501), 4501),
                Arguments.of("nothing", Map.of(), 3501));
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("ends")
    void theConnectHookAnswersWithThisWhichIsTheEnd(String what, Map<?, ?> answer, int code) {
        var session = visitor(newUser(), answer);
        session.client.connect();
        disconnected(session, code);
    }

    @Test
    void theConnectHookFailsAndLetsTheClientInWhenItTriesAgain() {
        String user = newUser();
        var session = visitor(user, FAILED, goodbye(4001), ok(Map.of("user", user))).connect();
        assertEquals(0, session.events.count(DisconnectedEvent.class));
        assertEquals(3, asked("connect", user, 3).size());
    }

    @Test
    void theConnectHookLetsAUserInTwiceAndTheOlderConnectionEnds() {
        String user = newUser();
        var first = entered(user);
        var second = again(user).connect();
        disconnected(first, 3504);
        hooksApi("publish", Map.of("channel", "personal:#" + user, "data", Map.of("for", user)));
        assertJson(Map.of("for", user), second.events.next(ServerPublicationEvent.class).getData());
    }

    @Test
    void theRefreshHookKeepsAConnectionAndChangesItsInfo() {
        String user = newUser();
        answers("refresh", user,
                ok(Map.of("expire_at", inSeconds(4), "info", Map.of("seat", 2))), ok(Map.of("expire_at", inSeconds(600))));
        var session = entered(user, Map.of("expire_at", inSeconds(2), "info", Map.of("seat", 1), "meta", Map.of("plan", "pro")));
        var question = asked("refresh", user, 2).get(0);
        assertEquals(user, question.get("user").getAsString());
        assertJson(Map.of("plan", "pro"), question.get("meta"));
        var sub = subscribed(session, channelIn("open"));
        Scenario.<PublishResult>result(callback -> sub.subscription.publish(json(Map.of()), callback));
        assertJson(Map.of("seat", 2), sub.events.next(PublicationEvent.class).getInfo().getConnInfo());
        assertEquals(1, session.events.count(ConnectingEvent.class));
    }

    @Test
    void theRefreshHookSaysThatTheConnectionHasExpiredAndTheClientComesBack() {
        String user = newUser();
        answers("refresh", user, ok(Map.of("expired", true)));
        var session = visitor(user, ok(Map.of("user", user, "expire_at", inSeconds(2))), ok(Map.of("user", user))).connect();
        session.events.next(ConnectingEvent.class);
        assertEquals(3005, session.events.next(ConnectingEvent.class).getCode());
        session.events.next(ConnectedEvent.class);
    }

    @Test
    void theSubscribeHookSaysWhatComesWithTheSubscription() {
        String user = newUser();
        String channel = channelIn("asked");
        answers("subscribe", channel, ok(Map.of("info", Map.of("role", "admin"), "data", Map.of("welcome", 2))));
        var session = entered(user, Map.of("meta", Map.of("plan", "pro")));
        var sub = subscribed(session, channel, options -> options.setData(json(Map.of("code", 1234))));
        assertJson(Map.of("welcome", 2), sub.event.getData());
        var client = Map.of("client", session.id, "user", user, "chan_info", Map.of("role", "admin"));
        assertJson(Map.of("presence", Map.of(session.id, client)), hooksApi("presence", Map.of("channel", channel)));
        var question = asked("subscribe", channel, 1).get(0);
        assertJson(Map.of("code", 1234), question.get("data"));
        assertJson(Map.of("plan", "pro"), question.get("meta"));
        assertEquals(user, question.get("user").getAsString());
    }

    @Test
    void theSubscribeHookRefusesForNowThenForGood() {
        String channel = channelIn("asked");
        var notYet = Map.of("error", Map.of("code", 1001, "message", "not yet", "temporary", true));
        answers("subscribe", channel, notYet, Map.of("status", 503), failure(1001));
        var session = entered(newUser());
        refused(subscription(session, channel), 1001);
        assertEquals(3, asked("subscribe", channel, 3).size());
        assertEquals(ClientState.CONNECTED, session.client.getState());
    }

    @Test
    void theSubscribeHookDisconnects() {
        String channel = channelIn("asked");
        answers("subscribe", channel, goodbye(4503));
        var session = entered(newUser());
        subscription(session, channel);
        disconnected(session, 4503);
    }

    @Test
    void theSubRefreshHookKeepsASubscriptionUntilItSaysThatItHasExpired() {
        String user = newUser();
        String channel = channelIn("asked");
        answers("subscribe", channel, ok(Map.of("expire_at", inSeconds(2))), ok(Map.of()));
        answers("sub_refresh", channel, ok(Map.of("expire_at", inSeconds(4))), ok(Map.of("expired", true)));
        var sub = subscribed(entered(user), channel);
        sub.events.next(SubscribingEvent.class);
        assertEquals(2501, sub.events.next(SubscribingEvent.class).getCode());
        var questions = asked("sub_refresh", channel, 2);
        assertEquals(2, questions.size());
        assertEquals(user, questions.get(0).get("user").getAsString());
        sub.events.next(SubscribedEvent.class);
    }

    @Test
    void thePublishHookSaysWhatIsPublishedRefusesAndDisconnects() {
        String user = newUser();
        String channel = channelIn("asked");
        answers("subscribe", channel, ok(Map.of()));
        answers("publish", channel,
                ok(Map.of("data", Map.of("text", "b***"), "tags", Map.of("judged", "yes"))),
                ok(Map.of("idempotency_key", "same")), ok(Map.of("idempotency_key", "same")),
                ok(Map.of("skip_history", true)), failure(1002), FAILED, goodbye(4504));
        var session = entered(user);
        var sub = subscribed(session, channel);
        IntFunction<Consumer<ResultCallback<PublishResult>>> say =
                n -> callback -> sub.subscription.publish(json(Map.of("n", n)), callback);
        for (int n = 1; n <= 4; n++) {
            result(say.apply(n));
        }
        var publication = sub.events.next(PublicationEvent.class);
        assertJson(Map.of("text", "b***"), publication.getData());
        assertEquals("yes", publication.getTags().get("judged"));
        assertEquals(user, publication.getInfo().getUser());
        for (int n : List.of(2, 4)) {
            assertJson(Map.of("n", n), sub.events.next(PublicationEvent.class).getData());
        }
        var all = new HistoryOptions.Builder().withLimit(-1).build();
        var history = Scenario.<HistoryResult>result(callback -> sub.subscription.history(all, callback));
        assertEquals(2, history.getPublications().size());
        fails(1002, say.apply(5));
        fails(100, say.apply(6));
        sub.subscription.publish(json(Map.of("n", 7)), (error, result) -> {});
        disconnected(session, 4504);
        var question = asked("publish", channel, 7).get(0);
        assertJson(Map.of("n", 1), question.get("data"));
        assertEquals(user, question.get("user").getAsString());
    }

    @Test
    void theRpcHookAnswersRefusesAndDisconnects() {
        String user = newUser();
        String method = newUser();
        answers("rpc", method, ok(Map.of("data", Map.of("pong", List.of(1, 2)))), failure(1003), FAILED, goodbye(4505));
        var session = entered(user);
        Consumer<ResultCallback<RPCResult>> say = callback -> session.client.rpc(method, json(Map.of("ping", 1)), callback);
        assertJson(Map.of("pong", List.of(1, 2)), result(say).getData());
        fails(1003, say);
        fails(100, say);
        say.accept((error, result) -> {});
        disconnected(session, 4505);
        var question = asked("rpc", method, 4).get(0);
        assertJson(Map.of("ping", 1), question.get("data"));
        assertEquals(user, question.get("user").getAsString());
        assertTrue(session.events.count(ConnectedEvent.class) == 1);
    }
}
