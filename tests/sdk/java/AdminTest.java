package sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static sdk.Offsets.numberOf;
import static sdk.Server.api;
import static sdk.Server.channelIn;
import static sdk.Server.json;
import static sdk.Server.newUser;
import static sdk.Server.publish;

import io.github.centrifugal.centrifuge.ConnectedEvent;
import io.github.centrifugal.centrifuge.ConnectingEvent;
import io.github.centrifugal.centrifuge.DisconnectedEvent;
import io.github.centrifugal.centrifuge.ErrorEvent;
import io.github.centrifugal.centrifuge.PublicationEvent;
import io.github.centrifugal.centrifuge.PublishResult;
import io.github.centrifugal.centrifuge.RPCResult;
import io.github.centrifugal.centrifuge.ServerPublicationEvent;
import io.github.centrifugal.centrifuge.ServerSubscribedEvent;
import io.github.centrifugal.centrifuge.ServerUnsubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribedEvent;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class AdminTest extends Scenario {
    private static void disconnect(String user, int code) {
        api("disconnect", Map.of("user", user, "disconnect", Map.of("code", code, "reason", "because")));
    }

    @Test
    void disconnectWithoutACodeIsTerminal() {
        String user = newUser();
        var session = as(user);
        api("disconnect", Map.of("user", user));
        assertEquals("force disconnect", disconnected(session, 3503));
    }

    @ParameterizedTest
    @ValueSource(ints = {3500, 3999, 4500, 4999})
    void disconnectWithThisCodeIsTerminal(int code) {
        String user = newUser();
        var session = as(user);
        disconnect(user, code);
        assertEquals("because", disconnected(session, code));
    }

    @ParameterizedTest
    @ValueSource(ints = {3001, 3499, 4000, 4499})
    void afterThisCodeTheClientComesBack(int code) {
        String user = newUser();
        var session = as(user);
        session.events.next(ConnectingEvent.class);
        disconnect(user, code);
        var event = session.events.next(ConnectingEvent.class);
        assertEquals(code, event.getCode());
        assertEquals("because", event.getReason());
        session.events.next(ConnectedEvent.class);
        assertEquals(0, session.events.count(DisconnectedEvent.class));
    }

    /** Centrifugo drops the connection for this code: the client sees neither a close frame nor a disconnect push. */
    @Test
    void after3000TheClientComesBackAsFromAFailureOfTheNetwork() {
        String user = newUser();
        String channel = channelIn("history");
        var session = as(user);
        var sub = subscribed(session, channel);
        publish(channel, 1, 1);
        numbers(sub, 1, 1);
        session.events.next(ConnectingEvent.class);
        disconnect(user, 3000);
        var event = session.events.next(ConnectingEvent.class);
        assertEquals(1, event.getCode()); // the SDK's own, of a connection that has ended without a close frame
        assertEquals("transport closed", event.getReason());
        assertInstanceOf(IOException.class, session.events.next(ErrorEvent.class).getError());
        assertNotEquals(session.id, session.events.next(ConnectedEvent.class).getClient());
        assertTrue(sub.events.next(SubscribedEvent.class).getRecovered());
        publish(channel, 2, 2);
        numbers(sub, 2, 2);
        assertEquals(0, session.events.count(DisconnectedEvent.class));
    }

    @Test
    void disconnectOfOneClientLeavesTheUsersOthers() {
        String user = newUser();
        var first = as(user);
        var second = as(user);
        api("disconnect", Map.of("user", user, "client", first.id));
        disconnected(first, 3503);
        Scenario.<RPCResult>fails(108, callback -> second.client.rpc("any", json(Map.of()), callback)); // still answered
    }

    @Test
    void unsubscribeEndsTheSubscription() {
        String user = newUser();
        String channel = channelIn("open");
        var sub = subscribed(as(user), channel);
        api("unsubscribe", Map.of("user", user, "channel", channel));
        refused(sub, 2000);
        sub.subscription.subscribe();
        sub.events.next(SubscribedEvent.class);
    }

    @Test
    void unsubscribeEndsASubscriptionThatTheApiBegan() {
        String user = newUser();
        String channel = channelIn("history");
        var session = as(user);
        api("subscribe", Map.of("user", user, "channel", channel));
        assertEquals(channel, session.events.next(ServerSubscribedEvent.class).getChannel());
        publish(channel, 1, 1);
        assertEquals(1, numberOf(channel, session.events.next(ServerPublicationEvent.class).getOffset()));
        api("unsubscribe", Map.of("user", user, "channel", channel));
        assertEquals(channel, session.events.next(ServerUnsubscribedEvent.class).getChannel());
    }

    @Test
    void aHundredSubscriptionsGetABroadcast() {
        var session = connected();
        var subs = new ArrayList<Sub>();
        for (int i = 0; i < 100; i++) {
            subs.add(subscription(session, channelIn("history")));
        }
        subs.forEach(sub -> sub.events.next(SubscribedEvent.class));
        api("broadcast", Map.of("channels", subs.stream().map(Sub::channel).toList(), "data", Map.of("n", 1)));
        for (Sub sub : subs) {
            Offsets.recordHistory(sub.channel(), 1);
            numbers(sub, 1, 1);
        }
    }

    @Test
    void fiftyClientsSeeOneOrder() {
        String channel = channelIn("history");
        var subs = new ArrayList<Sub>();
        for (int i = 0; i < 50; i++) {
            subs.add(subscribed(connected(), channel));
        }
        var published = new ArrayList<CompletableFuture<PublishResult>>();
        for (int i = 0; i < subs.size(); i++) {
            var future = new CompletableFuture<PublishResult>();
            published.add(future);
            subs.get(i).subscription.publish(json(i), (error, result) -> {
                if (error != null) {
                    future.completeExceptionally(error);
                } else {
                    future.complete(result);
                }
            });
        }
        published.forEach(Scenario::await);
        Offsets.recordHistory(channel, subs.size());
        List<String> order = null;
        for (Sub sub : subs) {
            var seen = new ArrayList<String>();
            for (int number = 1; number <= subs.size(); number++) {
                var publication = sub.events.next(PublicationEvent.class);
                assertEquals(number, numberOf(channel, publication.getOffset()));
                seen.add(new String(publication.getData(), StandardCharsets.UTF_8));
            }
            order = order == null ? seen : order;
            assertEquals(order, seen);
        }
        assertEquals(subs.size(), new HashSet<>(order).size());
    }
}
