package sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static sdk.Offsets.numberOf;
import static sdk.Server.assertJson;
import static sdk.Server.token;
import static sdk.Server.wsUrl;

import io.github.centrifugal.centrifuge.Client;
import io.github.centrifugal.centrifuge.ClientState;
import io.github.centrifugal.centrifuge.ConnectedEvent;
import io.github.centrifugal.centrifuge.ConnectingEvent;
import io.github.centrifugal.centrifuge.ConnectionTokenEvent;
import io.github.centrifugal.centrifuge.ConnectionTokenGetter;
import io.github.centrifugal.centrifuge.DisconnectedEvent;
import io.github.centrifugal.centrifuge.DuplicateSubscriptionException;
import io.github.centrifugal.centrifuge.ErrorEvent;
import io.github.centrifugal.centrifuge.EventListener;
import io.github.centrifugal.centrifuge.JoinEvent;
import io.github.centrifugal.centrifuge.LeaveEvent;
import io.github.centrifugal.centrifuge.Options;
import io.github.centrifugal.centrifuge.PublicationEvent;
import io.github.centrifugal.centrifuge.ReplyError;
import io.github.centrifugal.centrifuge.ResultCallback;
import io.github.centrifugal.centrifuge.ServerPublicationEvent;
import io.github.centrifugal.centrifuge.ServerSubscribedEvent;
import io.github.centrifugal.centrifuge.ServerUnsubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribingEvent;
import io.github.centrifugal.centrifuge.Subscription;
import io.github.centrifugal.centrifuge.SubscriptionErrorEvent;
import io.github.centrifugal.centrifuge.SubscriptionEventListener;
import io.github.centrifugal.centrifuge.SubscriptionOptions;
import io.github.centrifugal.centrifuge.SubscriptionState;
import io.github.centrifugal.centrifuge.SubscriptionTokenEvent;
import io.github.centrifugal.centrifuge.SubscriptionTokenGetter;
import io.github.centrifugal.centrifuge.TokenCallback;
import io.github.centrifugal.centrifuge.UnsubscribedEvent;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;

/** Creates the clients of one test and closes them after it. JUnit makes an instance of the class for each test. */
abstract class Scenario {
    private final List<AutoCloseable> opened = new ArrayList<>();

    @AfterEach
    void close() throws Exception {
        for (AutoCloseable one : opened) {
            one.close();
        }
    }

    static final class Session {
        final Events events = new Events();
        final Client client;
        String id;

        private Session(String url, Options options) {
            client = new Client(url, options, new Recorder(events));
        }

        /** Connects and waits until it is connected. */
        Session connect() {
            client.connect();
            id = events.next(ConnectedEvent.class).getClient();
            return this;
        }

        /** The SDK prints an exception if it is closed while it handles the reply to connect. */
        void close() throws InterruptedException {
            if (client.getState() != ClientState.DISCONNECTED) {
                client.disconnect();
                events.next(DisconnectedEvent.class);
            }
            client.close(0);
        }
    }

    static final class Sub {
        final Events events = new Events();
        final Subscription subscription;
        SubscribedEvent event;

        private Sub(Session session, String channel, SubscriptionOptions options) {
            try {
                subscription = session.client.newSubscription(channel, options, new SubscriptionRecorder(events));
            } catch (DuplicateSubscriptionException error) {
                throw new AssertionError(error);
            }
        }

        String channel() {
            return subscription.getChannel();
        }
    }

    /** What a test sets in the options of a client or of a subscription. */
    interface Set<T> extends Consumer<T> {}

    Proxy proxy() {
        var proxy = new Proxy();
        opened.add(proxy);
        return proxy;
    }

    /** Creates a client without connecting it. */
    Session client(String url, Set<Options> set) {
        var options = new Options();
        options.setMinReconnectDelay(20);
        options.setMaxReconnectDelay(200);
        options.setTimeout((int) TimeUnit.SECONDS.toMillis(Server.DEADLINE_S));
        set.accept(options);
        var session = new Session(url, options);
        opened.add(session::close);
        return session;
    }

    Session client(Set<Options> set) {
        return client(wsUrl(), set);
    }

    /** Creates a client and waits until it is connected. */
    Session connected(Set<Options> set) {
        return client(set).connect();
    }

    Session connected() {
        return connected(options -> {});
    }

    /** Creates a client that is connected as this user. */
    Session as(String user) {
        return connected(options -> options.setToken(token(Map.of("sub", user))));
    }

    /** Creates a subscription and calls subscribe. */
    Sub subscription(Session session, String channel, Set<SubscriptionOptions> set) {
        var options = new SubscriptionOptions();
        options.setMinResubscribeDelay(20);
        options.setMaxResubscribeDelay(200);
        set.accept(options);
        var sub = new Sub(session, channel, options);
        sub.subscription.subscribe();
        return sub;
    }

    Sub subscription(Session session, String channel) {
        return subscription(session, channel, options -> {});
    }

    /** Creates a subscription and waits until it is subscribed. */
    Sub subscribed(Session session, String channel, Set<SubscriptionOptions> set) {
        Sub sub = subscription(session, channel, set);
        sub.event = sub.events.next(SubscribedEvent.class);
        return sub;
    }

    Sub subscribed(Session session, String channel) {
        return subscribed(session, channel, options -> {});
    }

    /** Expects the subscription to end with this code. */
    static void refused(Sub sub, int code) {
        assertEquals(code, sub.events.next(UnsubscribedEvent.class).getCode());
        assertEquals(SubscriptionState.UNSUBSCRIBED, sub.subscription.getState());
    }

    /** Expects the connection to end with this code, and returns the reason. */
    static String disconnected(Session session, int code) {
        var event = session.events.next(DisconnectedEvent.class);
        assertEquals(code, event.getCode());
        assertEquals(ClientState.DISCONNECTED, session.client.getState());
        return event.getReason();
    }

    /** Reads publications {"n": N} and expects from..=to, with the offsets of the publications with these numbers. */
    static void numbers(Sub sub, int from, int to) {
        for (int n = from; n <= to; n++) {
            var publication = sub.events.next(PublicationEvent.class);
            assertJson(Map.of("n", n), publication.getData());
            assertEquals(n, numberOf(sub.channel(), publication.getOffset()));
        }
    }

    /** The result of a call of the SDK. */
    static <T> T result(Consumer<ResultCallback<T>> call) {
        var future = new CompletableFuture<T>();
        call.accept((error, result) -> {
            if (error != null) {
                future.completeExceptionally(error);
            } else {
                future.complete(result);
            }
        });
        return await(future);
    }

    static <T> T await(CompletableFuture<T> future) {
        try {
            return future.get(Server.DEADLINE_S, TimeUnit.SECONDS);
        } catch (InterruptedException | TimeoutException | ExecutionException error) {
            throw new AssertionError(error);
        }
    }

    /** Expects an error reply with this code. */
    static <T> void fails(int code, Consumer<ResultCallback<T>> call) {
        var error = assertThrows(AssertionError.class, () -> result(call));
        var reply = assertInstanceOf(ReplyError.class, error.getCause().getCause());
        assertEquals(code, reply.getCode());
    }

    /** Gives tokens, or throws to have none. */
    interface Tokens {
        String next() throws Exception;
    }

    static ConnectionTokenGetter connectionTokens(Tokens tokens) {
        return new ConnectionTokenGetter() {
            @Override
            public void getConnectionToken(ConnectionTokenEvent event, TokenCallback callback) {
                give(tokens, callback);
            }
        };
    }

    static SubscriptionTokenGetter subscriptionTokens(Tokens tokens) {
        return new SubscriptionTokenGetter() {
            @Override
            public void getSubscriptionToken(SubscriptionTokenEvent event, TokenCallback callback) {
                give(tokens, callback);
            }
        };
    }

    private static void give(Tokens tokens, TokenCallback callback) {
        try {
            callback.Done(null, tokens.next());
        } catch (Exception error) {
            callback.Done(error, null);
        }
    }

    private static final class Recorder extends EventListener {
        private final Events events;

        private Recorder(Events events) {
            this.events = events;
        }

        @Override
        public void onConnecting(Client client, ConnectingEvent event) {
            events.add(event);
        }

        @Override
        public void onConnected(Client client, ConnectedEvent event) {
            events.add(event);
        }

        @Override
        public void onDisconnected(Client client, DisconnectedEvent event) {
            events.add(event);
        }

        @Override
        public void onError(Client client, ErrorEvent event) {
            events.add(event);
        }

        @Override
        public void onSubscribed(Client client, ServerSubscribedEvent event) {
            events.add(event);
        }

        @Override
        public void onUnsubscribed(Client client, ServerUnsubscribedEvent event) {
            events.add(event);
        }

        @Override
        public void onPublication(Client client, ServerPublicationEvent event) {
            events.add(event);
        }
    }

    private static final class SubscriptionRecorder extends SubscriptionEventListener {
        private final Events events;

        private SubscriptionRecorder(Events events) {
            this.events = events;
        }

        @Override
        public void onSubscribing(Subscription sub, SubscribingEvent event) {
            events.add(event);
        }

        @Override
        public void onSubscribed(Subscription sub, SubscribedEvent event) {
            events.add(event);
        }

        @Override
        public void onUnsubscribed(Subscription sub, UnsubscribedEvent event) {
            events.add(event);
        }

        @Override
        public void onError(Subscription sub, SubscriptionErrorEvent event) {
            events.add(event);
        }

        @Override
        public void onPublication(Subscription sub, PublicationEvent event) {
            events.add(event);
        }

        @Override
        public void onJoin(Subscription sub, JoinEvent event) {
            events.add(event);
        }

        @Override
        public void onLeave(Subscription sub, LeaveEvent event) {
            events.add(event);
        }
    }
}
