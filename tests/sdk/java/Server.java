package sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** The server under test: its addresses, its HTTP API, the backend of its hooks, and tokens that it accepts. */
final class Server {
    static final long DEADLINE_S = 20;

    private static final Gson GSON = new Gson();
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final SecureRandom RANDOM = new SecureRandom();

    private Server() {}

    static String required(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            throw new AssertionError(name + " is not set (run through tests/sdk/with-server)");
        }
        return value;
    }

    static String wsUrl() {
        return required("DUNLIN_WS_URL");
    }

    /** A second server, which asks a backend (see answers) about clients without a token. */
    static String hooksUrl() {
        return required("HOOKS_WS_URL");
    }

    /** Calls the HTTP API; an error of the server ends the test. */
    static JsonObject api(String method, Map<String, ?> body) {
        return call("DUNLIN_API_URL", method, body);
    }

    /** Calls the HTTP API of the server that asks a backend. */
    static JsonObject hooksApi(String method, Map<String, ?> body) {
        return call("HOOKS_API_URL", method, body);
    }

    private static JsonObject call(String server, String method, Map<String, ?> body) {
        JsonObject reply = post(required(server) + "/" + method, body).getAsJsonObject();
        assertNull(reply.get("error"), method);
        return reply.getAsJsonObject("result");
    }

    private static JsonElement post(String url, Map<String, ?> body) {
        var request = HttpRequest.newBuilder(URI.create(url))
                .header("Content-Type", "application/json")
                .header("X-API-Key", required("DUNLIN_API_KEY"))
                .POST(HttpRequest.BodyPublishers.ofString(GSON.toJson(body)))
                .build();
        try {
            var answer = HTTP.send(request, BodyHandlers.ofString());
            assertEquals(200, answer.statusCode(), url);
            return JsonParser.parseString(answer.body());
        } catch (java.io.IOException | InterruptedException error) {
            throw new AssertionError(url, error);
        }
    }

    /** Publishes {"n": n} for each n by the HTTP API and returns the last result. */
    static JsonObject publish(String channel, int from, int to) {
        JsonObject last = null;
        for (int n = from; n <= to; n++) {
            last = api("publish", Map.of("channel", channel, "data", Map.of("n", n)));
            Offsets.record(channel, last.get("offset").getAsLong());
        }
        return last;
    }

    /** Defines the backend's responses of this kind about a channel, user or method; the last one is repeated. */
    static void answers(String kind, String about, Map<?, ?>... all) {
        post(required("HOOKS_BACKEND_URL") + "/answers", Map.of("kind", kind, "about", about, "answers", List.of(all)));
    }

    /** The requests to the backend so far, once there are count of them. */
    static List<JsonObject> asked(String kind, String about, int count) {
        long end = System.nanoTime() + DEADLINE_S * 1_000_000_000L;
        while (true) {
            JsonArray all = post(required("HOOKS_BACKEND_URL") + "/asked", Map.of("kind", kind, "about", about)).getAsJsonArray();
            if (all.size() >= count) {
                var questions = new ArrayList<JsonObject>();
                all.forEach(one -> questions.add(one.getAsJsonObject().getAsJsonObject("question")));
                return questions;
            }
            if (System.nanoTime() > end) {
                throw new AssertionError("asked " + all.size() + " times of " + count + ": " + kind + " " + about);
            }
            pause(); // between two looks; the verdict is the backend's
        }
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    /** A JWT (HS256) with these claims, signed with the server's secret. */
    static String token(Map<String, ?> claims) {
        return signed(claims, required("DUNLIN_HMAC_SECRET"));
    }

    static String signed(Map<String, ?> claims, String secret) {
        var encoder = Base64.getUrlEncoder().withoutPadding();
        String text = encoder.encodeToString(json(Map.of("alg", "HS256", "typ", "JWT"))) + "." + encoder.encodeToString(json(claims));
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
            return text + "." + encoder.encodeToString(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
        } catch (java.security.GeneralSecurityException error) {
            throw new AssertionError(error);
        }
    }

    /** In Unix seconds, with milliseconds, so that a token lives as long as the test says. */
    static double inSeconds(int seconds) {
        return System.currentTimeMillis() / 1000.0 + seconds;
    }

    /** The name of a channel that no other test uses. */
    static String channelIn(String namespace) {
        return namespace + ":" + Long.toHexString(RANDOM.nextLong());
    }

    /** The name of a user that no other test uses. */
    static String newUser() {
        return "user-" + Long.toHexString(RANDOM.nextLong());
    }

    static byte[] json(Object value) {
        return GSON.toJson(value).getBytes(StandardCharsets.UTF_8);
    }

    static void assertJson(Object wanted, byte[] got) {
        assertJson(wanted, JsonParser.parseString(new String(got, StandardCharsets.UTF_8)));
    }

    static void assertJson(Object wanted, JsonElement got) {
        // Through text, so that equal numbers of different classes are equal.
        assertEquals(JsonParser.parseString(GSON.toJson(wanted)), got);
    }
}
