package sdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static sdk.Offsets.numberOf;
import static sdk.Offsets.offsetOf;
import static sdk.Server.api;
import static sdk.Server.assertJson;
import static sdk.Server.channelIn;
import static sdk.Server.json;
import static sdk.Server.newUser;
import static sdk.Server.publish;
import static sdk.Server.token;

import io.github.centrifugal.centrifuge.HistoryOptions;
import io.github.centrifugal.centrifuge.HistoryResult;
import io.github.centrifugal.centrifuge.JoinEvent;
import io.github.centrifugal.centrifuge.LeaveEvent;
import io.github.centrifugal.centrifuge.PresenceResult;
import io.github.centrifugal.centrifuge.PresenceStatsResult;
import io.github.centrifugal.centrifuge.PublicationEvent;
import io.github.centrifugal.centrifuge.PublishResult;
import io.github.centrifugal.centrifuge.StreamPosition;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ChannelTest extends Scenario {
    private static void publishIn(Sub sub, byte[] data) {
        Scenario.<PublishResult>result(callback -> sub.subscription.publish(data, callback));
    }

    @Test
    void aPublisherWhoIsSubscribedGetsThePublicationWithItsOwnInfo() {
        String user = newUser();
        var session = connected(options -> options.setToken(token(Map.of("sub", user, "info", Map.of("name", "Ann")))));
        var sub = subscribed(session, channelIn("open"));
        publishIn(sub, json(Map.of("text", "hello ✓")));
        var publication = sub.events.next(PublicationEvent.class);
        assertJson(Map.of("text", "hello ✓"), publication.getData());
        assertEquals(user, publication.getInfo().getUser());
        assertEquals(session.id, publication.getInfo().getClient());
        assertJson(Map.of("name", "Ann"), publication.getInfo().getConnInfo());
        assertEquals(0, publication.getOffset());
    }

    @Test
    void publicationsOfOneClientReachAnotherInOrder() {
        String channel = channelIn("history");
        var publisher = connected();
        var reader = subscribed(connected(), channel);
        for (int n = 1; n <= 100; n++) {
            byte[] data = json(Map.of("n", n));
            Scenario.<PublishResult>result(callback -> publisher.client.publish(channel, data, callback));
        }
        Offsets.recordHistory(channel, 100);
        numbers(reader, 1, 100);
    }

    @Test
    void aPublicationOfTheHttpApiHasTagsAndOffset() {
        String channel = channelIn("history");
        var sub = subscribed(connected(), channel);
        var data = Map.of("nested", Map.of("list", Arrays.asList(1, 2.5, "three", true)));
        var told = api("publish", Map.of("channel", channel, "data", data, "tags", Map.of("kind", "test")));
        var publication = sub.events.next(PublicationEvent.class);
        assertJson(data, publication.getData());
        assertEquals("test", publication.getTags().get("kind"));
        assertEquals(told.get("offset").getAsLong(), publication.getOffset());
        assertEquals("", publication.getInfo().getClient()); // this SDK's info of nobody
    }

    @Test
    void onePublicationForOneIdempotencyKey() {
        String channel = channelIn("history");
        var sub = subscribed(connected(), channel);
        for (String key : List.of("one", "one", "two")) {
            api("publish", Map.of("channel", channel, "data", key, "idempotency_key", key));
        }
        assertJson("one", sub.events.next(PublicationEvent.class).getData());
        assertJson("two", sub.events.next(PublicationEvent.class).getData());
    }

    @Test
    void almost64KiBByAClientAnd200KBByTheHttpApi() {
        String channel = channelIn("open");
        var sub = subscribed(connected(), channel);
        String text = "x".repeat(65_000);
        publishIn(sub, json(text));
        assertJson(text, sub.events.next(PublicationEvent.class).getData());
        text = "é".repeat(100_000);
        api("publish", Map.of("channel", channel, "data", text));
        assertJson(text, sub.events.next(PublicationEvent.class).getData());
    }

    @Test
    void refusedPublications() {
        var session = connected();
        Map.of(channelIn("nowhere"), 102, channelIn("closed"), 103, channelIn("members"), 103).forEach((channel, code) ->
                Scenario.<PublishResult>fails(code, callback -> session.client.publish(channel, json(Map.of()), callback)));
        publishIn(subscribed(session, channelIn("members")), json(Map.of()));
    }

    @Test
    void everyByteArrives() {
        byte[] everyByte = new byte[1024];
        for (int i = 0; i < everyByte.length; i++) {
            everyByte[i] = (byte) i;
        }
        String channel = channelIn("history");
        var sub = subscribed(connected(), channel);
        publishIn(sub, everyByte);
        api("publish", Map.of("channel", channel, "b64data", Base64.getEncoder().encodeToString(everyByte)));
        for (int i = 0; i < 2; i++) {
            assertArrayEquals(everyByte, sub.events.next(PublicationEvent.class).getData());
        }
    }

    private record Shape(HistoryOptions.Builder options, List<Integer> numbers) {}

    private static HistoryOptions.Builder limit(int limit) {
        return new HistoryOptions.Builder().withLimit(limit);
    }

    @Test
    void historyInEveryShape() {
        String channel = channelIn("history");
        var top = publish(channel, 1, 5);
        String epoch = top.get("epoch").getAsString();
        var session = connected();
        for (Shape shape : List.of(
                new Shape(new HistoryOptions.Builder(), List.of()),
                new Shape(limit(0), List.of()),
                new Shape(limit(-1), List.of(1, 2, 3, 4, 5)),
                new Shape(limit(2), List.of(1, 2)),
                new Shape(limit(2).withReverse(true), List.of(5, 4)),
                new Shape(limit(-1).withSince(new StreamPosition(offsetOf(channel, 2), epoch)), List.of(3, 4, 5)),
                new Shape(limit(2).withSince(new StreamPosition(offsetOf(channel, 2), epoch)), List.of(3, 4)),
                new Shape(limit(-1).withSince(new StreamPosition(offsetOf(channel, 5), epoch)), List.of()),
                new Shape(limit(-1).withSince(new StreamPosition(offsetOf(channel, 4), epoch)).withReverse(true), List.of(3, 2, 1)))) {
            var history = Scenario.<HistoryResult>result(
                    callback -> session.client.history(channel, shape.options.build(), callback));
            var numbers = new ArrayList<Integer>();
            for (var publication : history.getPublications()) {
                int number = numberOf(channel, publication.getOffset());
                numbers.add(number);
                assertJson(Map.of("n", number), publication.getData());
            }
            assertEquals(shape.numbers, numbers);
            assertEquals(top.get("offset").getAsLong(), history.getOffset());
            assertEquals(epoch, history.getEpoch());
        }
        var another = limit(1).withSince(new StreamPosition(1, "another")).build();
        Scenario.<HistoryResult>fails(112, callback -> session.client.history(channel, another, callback));
    }

    /** Refused to clients that are not subscribed, or in a namespace without it. */
    private static final Map<String, Integer> REFUSED = Map.of("nowhere", 102, "closed", 103, "members", 103, "open", 108);

    @Test
    void refusedHistory() {
        var session = connected();
        REFUSED.forEach((namespace, code) -> Scenario.<HistoryResult>fails(
                code, callback -> session.client.history(channelIn(namespace), limit(1).build(), callback)));
    }

    @Test
    void presenceNamesClientsCountsUsersTellsJoinsAndLeaves() {
        String channel = channelIn("presence");
        String user = newUser();
        Set<io.github.centrifugal.centrifuge.Options> asUser =
                options -> options.setToken(token(Map.of("sub", user, "info", Map.of("n", 1))));
        var watcher = connected();
        var watching = subscribed(watcher, channel);
        assertEquals(watcher.id, watching.events.next(JoinEvent.class).getInfo().getClient());
        var first = connected(asUser);
        var second = connected(asUser);
        var coming = subscribed(first, channel);
        var join = watching.events.next(JoinEvent.class).getInfo();
        assertEquals(first.id, join.getClient());
        assertEquals(user, join.getUser());
        assertJson(Map.of("n", 1), join.getConnInfo());
        subscribed(second, channel);
        watching.events.next(JoinEvent.class);

        var clients = Scenario.<PresenceResult>result(callback -> watcher.client.presence(channel, callback)).getClients();
        assertTrue(clients.keySet().containsAll(List.of(watcher.id, first.id, second.id)), clients.toString());
        var stats = Scenario.<PresenceStatsResult>result(watching.subscription::presenceStats);
        assertEquals(3, stats.getNumClients());
        assertEquals(2, stats.getNumUsers());

        coming.subscription.unsubscribe();
        assertEquals(first.id, watching.events.next(LeaveEvent.class).getInfo().getClient());
        second.client.disconnect();
        assertEquals(second.id, watching.events.next(LeaveEvent.class).getInfo().getClient());
    }

    @Test
    void refusedPresence() {
        var session = connected();
        REFUSED.forEach((namespace, code) -> {
            Scenario.<PresenceResult>fails(code, callback -> session.client.presence(channelIn(namespace), callback));
            Scenario.<PresenceStatsResult>fails(code, callback -> session.client.presenceStats(channelIn(namespace), callback));
        });
    }
}
