using System;
using System.Collections.Concurrent;
using System.Net.WebSockets;
using System.Threading;
using System.Threading.Tasks;

namespace Dunlin.Rooms
{
    public enum SocketMessageKind
    {
        Opened,
        /// <summary>A frame: text in JSON, binary in Protobuf.</summary>
        Data,
        Closed,
    }

    /// <summary>Something that happened to a socket.</summary>
    public struct SocketMessage
    {
        public SocketMessageKind Kind;
        public byte[] Data;
        /// <summary>The close code; 1006 if the connection was lost.</summary>
        public int Code;
        public string Reason;
    }

    /// <summary>
    /// A WebSocket that is polled. Implement it where <see cref="ClientRoomSocket"/> does not run; Unity's WebGL player has one already. All calls
    /// come from the thread of <see cref="RoomClient.Poll"/>.
    /// </summary>
    public interface IRoomSocket
    {
        void Open(Uri url, string subprotocol);
        void Send(byte[] data, bool isText);
        /// <summary>The next message, in order; <c>Closed</c> is the last. Returns false if there is none yet.</summary>
        bool TryReceive(out SocketMessage message);
        /// <summary>Sends what waits, then closes the connection. Returns at once; what arrives later is of no interest.</summary>
        void Close();
    }

    /// <summary>A socket over <see cref="ClientWebSocket"/>, which reads and writes on the thread pool.</summary>
    public sealed class ClientRoomSocket : IRoomSocket
    {
        private const int LostConnection = 1006;
        private const int MessageBytesMax = 64 << 20;
        /// <summary>Messages that wait for <see cref="TryReceive"/>. At this number, no more are read from the socket.</summary>
        private const int WaitingMax = 256;
        /// <summary>Bytes that wait to be sent. Beyond it the connection is given up.</summary>
        private const int UnsentBytesMax = 1 << 20;
        /// <summary>How long the closing of a connection may take.</summary>
        private const int CloseTimeoutMs = 2000;

        private readonly ClientWebSocket socket = new ClientWebSocket();
        private readonly CancellationTokenSource ending = new CancellationTokenSource();
        private readonly ConcurrentQueue<SocketMessage> received = new ConcurrentQueue<SocketMessage>();
        private readonly SemaphoreSlim places = new SemaphoreSlim(WaitingMax);
        private Task sending = Task.FromResult(0);
        private int unsentBytes;
        private volatile bool isOpen;
        private volatile bool isClosing;

        /// <summary>Completed when the connection has ended and nothing of it runs any more. It never fails.</summary>
        public Task Ended { get; private set; } = Task.FromResult(0);

        public void Open(Uri url, string subprotocol)
        {
            socket.Options.AddSubProtocol(subprotocol);
            Ended = Task.Run(() => RunAsync(url));
        }

        public void Send(byte[] data, bool isText)
        {
            if (isClosing) return;
            if (Interlocked.Add(ref unsentBytes, data.Length) > UnsentBytesMax) ending.Cancel();
            else sending = SendAsync(sending, data, isText ? WebSocketMessageType.Text : WebSocketMessageType.Binary);
        }

        public bool TryReceive(out SocketMessage message)
        {
            if (!received.TryDequeue(out message)) return false;
            if (message.Kind == SocketMessageKind.Data) places.Release();
            return true;
        }

        public void Close()
        {
            if (isClosing) return;
            isClosing = true;
            if (!isOpen)
            {
                ending.Cancel();
                return;
            }
            ending.CancelAfter(CloseTimeoutMs);
            sending = CloseAsync(sending);
            // If the reader waits for a place, it goes on, and reads up to the server's answer.
            places.Release();
        }

        private async Task SendAsync(Task before, byte[] data, WebSocketMessageType type)
        {
            try
            {
                await before.ConfigureAwait(false);
                await socket.SendAsync(new ArraySegment<byte>(data), type, true, ending.Token).ConfigureAwait(false);
                Interlocked.Add(ref unsentBytes, -data.Length);
            }
            catch (Exception)
            {
                // The receiving side sees the same, and reports it.
                ending.Cancel();
            }
        }

        /// <summary>The server answers with a close frame of its own, which ends the reading.</summary>
        private async Task CloseAsync(Task before)
        {
            try
            {
                await before.ConfigureAwait(false);
                await socket.CloseOutputAsync(WebSocketCloseStatus.NormalClosure, "", ending.Token).ConfigureAwait(false);
            }
            catch (Exception)
            {
                ending.Cancel();
            }
        }

        private async Task RunAsync(Uri url)
        {
            int code = LostConnection;
            string reason = "connection lost";
            try
            {
                Task connecting = socket.ConnectAsync(url, ending.Token);
                // Mono's socket does not see a cancellation while it waits for the handshake. It is left to the server's timeout then.
                await Task.WhenAny(connecting, Task.Delay(Timeout.Infinite, ending.Token)).ConfigureAwait(false);
                ending.Token.ThrowIfCancellationRequested();
                await connecting.ConfigureAwait(false);
                isOpen = true;
                // A close before this line sees a socket that is not open.
                if (isClosing) ending.Cancel();
                received.Enqueue(new SocketMessage { Kind = SocketMessageKind.Opened });
                await ReceiveAsync().ConfigureAwait(false);
                if (socket.CloseStatus != null) code = (int)socket.CloseStatus.Value;
                reason = socket.CloseStatusDescription ?? "";
            }
            catch (Exception error)
            {
                reason = error.Message;
            }
            ending.Cancel();
            await sending.ConfigureAwait(false);
            socket.Dispose();
            received.Enqueue(new SocketMessage { Kind = SocketMessageKind.Closed, Code = code, Reason = reason });
        }

        /// <summary>Reads until the server closes the connection.</summary>
        private async Task ReceiveAsync()
        {
            var buffer = new byte[1 << 14];
            int length = 0;
            while (true)
            {
                if (length == buffer.Length) Array.Resize(ref buffer, buffer.Length * 2);
                if (length > MessageBytesMax) throw new InvalidOperationException("a message is too long");
                var rest = new ArraySegment<byte>(buffer, length, buffer.Length - length);
                WebSocketReceiveResult result = await socket.ReceiveAsync(rest, ending.Token).ConfigureAwait(false);
                if (result.MessageType == WebSocketMessageType.Close) return;
                length += result.Count;
                if (!result.EndOfMessage) continue;
                var data = new byte[length];
                Buffer.BlockCopy(buffer, 0, data, 0, length);
                length = 0;
                if (!isClosing) await places.WaitAsync(ending.Token).ConfigureAwait(false);
                if (!isClosing) received.Enqueue(new SocketMessage { Kind = SocketMessageKind.Data, Data = data });
            }
        }
    }
}
