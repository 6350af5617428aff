using System;
using System.Collections.Concurrent;
using System.IO;
using System.Net.Sockets;
using System.Text;
using System.Threading.Tasks;

namespace Dunlin.Rooms.Tests
{
    /// <summary>
    /// A WebSocket of a game's own, as far as these tests need one: no TLS, no fragments. .NET Core 3.1 needs OpenSSL 1.1 for its own, which distributions
    /// no longer have.
    /// </summary>
    internal sealed class TcpSocket : ITestSocket
    {
        private const byte Text = 1;
        private const byte Binary = 2;
        private const byte CloseFrame = 8;
        private const int CloseTimeoutMs = 2000;

        private readonly TcpClient tcp = new TcpClient { NoDelay = true };
        private readonly ConcurrentQueue<SocketMessage> received = new ConcurrentQueue<SocketMessage>();
        private readonly object writing = new object();

        public Task Ended { get; private set; } = Task.FromResult(0);

        public void Open(Uri url, string subprotocol)
        {
            Ended = Task.Run(() => Run(url, subprotocol));
        }

        public void Send(byte[] data, bool isText)
        {
            SendFrame(isText ? Text : Binary, data);
        }

        public bool TryReceive(out SocketMessage message)
        {
            return received.TryDequeue(out message);
        }

        public void Close()
        {
            SendFrame(CloseFrame, new byte[] { 1000 >> 8, 1000 & 255 });
            Task.Delay(CloseTimeoutMs).ContinueWith(ignored => tcp.Close());
        }

        public void Cut()
        {
            tcp.Close();
        }

        /// <summary>Masked with 0: the server checks only that there is a mask.</summary>
        private void SendFrame(byte opcode, byte[] data)
        {
            var frame = new MemoryStream();
            frame.WriteByte((byte)(0x80 | opcode));
            if (data.Length < 126) frame.WriteByte((byte)(0x80 | data.Length));
            else frame.Write(new[] { (byte)(0x80 | 126), (byte)(data.Length >> 8), (byte)data.Length }, 0, 3);
            frame.Write(new byte[4], 0, 4);
            frame.Write(data, 0, data.Length);
            try
            {
                lock (writing) tcp.GetStream().Write(frame.GetBuffer(), 0, (int)frame.Length);
            }
            catch (Exception)
            {
                // The reader sees the same, and reports it.
                tcp.Close();
            }
        }

        private void Run(Uri url, string subprotocol)
        {
            int code = 1006;
            string reason = "connection lost";
            try
            {
                tcp.Connect(url.Host, url.Port);
                Stream stream = tcp.GetStream();
                string request = "GET " + url.PathAndQuery + " HTTP/1.1\r\nHost: " + url.Authority + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: " + subprotocol + "\r\n\r\n";
                byte[] bytes = Encoding.ASCII.GetBytes(request);
                stream.Write(bytes, 0, bytes.Length);
                SkipHead(stream);
                received.Enqueue(new SocketMessage { Kind = SocketMessageKind.Opened });
                byte[] last = Receive(stream);
                if (last.Length >= 2) code = last[0] << 8 | last[1];
            }
            catch (Exception error)
            {
                reason = error.Message;
            }
            tcp.Close();
            received.Enqueue(new SocketMessage { Kind = SocketMessageKind.Closed, Code = code, Reason = reason });
        }

        private static void SkipHead(Stream stream)
        {
            for (string head = ""; !head.EndsWith("\r\n\r\n"); )
            {
                head += (char)Exactly(stream, 1)[0];
                Check.True(head.Length < 4096 && "HTTP/1.1 101".StartsWith(head.Substring(0, Math.Min(head.Length, 12))), "the handshake: " + head);
            }
        }

        /// <summary>Reads frames up to a close frame, and returns its payload.</summary>
        private byte[] Receive(Stream stream)
        {
            while (true)
            {
                byte[] head = Exactly(stream, 2);
                int extended = head[1] == 127 ? 8 : head[1] == 126 ? 2 : 0;
                long length = extended == 0 ? head[1] : 0;
                foreach (byte one in Exactly(stream, extended)) length = length << 8 | one;
                byte[] data = Exactly(stream, (int)length);
                if ((head[0] & 15) == CloseFrame) return data;
                received.Enqueue(new SocketMessage { Kind = SocketMessageKind.Data, Data = data });
            }
        }

        private static byte[] Exactly(Stream stream, int length)
        {
            var data = new byte[length];
            for (int at = 0; at < length; )
            {
                int count = stream.Read(data, at, length - at);
                if (count == 0) throw new EndOfStreamException("the connection ended");
                at += count;
            }
            return data;
        }
    }
}
