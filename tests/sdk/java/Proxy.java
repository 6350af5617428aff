package sdk;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** A TCP proxy in front of the server. Its connections can be cut and paused. */
final class Proxy implements AutoCloseable {
    /** A server ping on an otherwise silent connection: one WebSocket frame with the single byte 0. */
    private static final byte[] PING = {(byte) 0x82, 1, 0};

    private final URI server = URI.create(Server.wsUrl());
    private final ServerSocket listener;
    private final Set<Socket> sockets = new HashSet<>();
    private boolean isOpen = true;
    private boolean isHeld;
    private int pings;

    Proxy() {
        try {
            listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        } catch (IOException error) {
            throw new AssertionError(error);
        }
        start(this::accept);
    }

    /** The server's WebSocket address, through this proxy. */
    String url() {
        return "ws://127.0.0.1:" + listener.getLocalPort() + server.getPath();
    }

    /** Ends every connection and refuses new ones until restore. */
    synchronized void cut() {
        isOpen = false;
        sockets.forEach(Proxy::close);
    }

    synchronized void restore() {
        isOpen = true;
    }

    /** Keeps connections open but forwards nothing from the server until release. */
    synchronized void hold() {
        isHeld = true;
    }

    synchronized void release() {
        isHeld = false;
        notifyAll();
    }

    /** Returns when count server pings have passed. The test's timeout bounds it. */
    synchronized void waitPings(int count) throws InterruptedException {
        while (pings < count) {
            wait();
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        release();
        cut();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = listener.accept();
            Socket upstream = new Socket(server.getHost(), server.getPort());
            synchronized (this) {
                if (!isOpen) {
                    close(client);
                    close(upstream);
                    continue;
                }
                sockets.add(client);
                sockets.add(upstream);
            }
            start(() -> pass(client, upstream, false));
            start(() -> pass(upstream, client, true));
        }
    }

    private void pass(Socket from, Socket to, boolean isFromServer) throws IOException, InterruptedException {
        try (from; to) {
            InputStream input = from.getInputStream();
            OutputStream output = to.getOutputStream();
            byte[] buffer = new byte[64 << 10];
            for (int length = input.read(buffer); length >= 0; length = input.read(buffer)) {
                if (isFromServer) {
                    fromServer(Arrays.copyOf(buffer, length));
                }
                output.write(buffer, 0, length);
            }
        } finally {
            synchronized (this) {
                sockets.remove(from);
                sockets.remove(to);
            }
        }
    }

    private synchronized void fromServer(byte[] chunk) throws InterruptedException {
        if (Arrays.equals(chunk, PING)) {
            pings++;
            notifyAll();
        }
        while (isHeld) {
            wait();
        }
    }

    private interface Work {
        void run() throws IOException, InterruptedException;
    }

    private static void start(Work work) {
        var thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException | InterruptedException ignored) {
                // The connection, or the proxy, has been closed.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // It was closed.
        }
    }
}
