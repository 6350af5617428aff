using System;
using System.Text;
using System.Threading.Tasks;

namespace Dunlin.Rooms.Tests
{
    /// <summary>A socket that a test can cut, and see the end of.</summary>
    internal interface ITestSocket : IRoomSocket
    {
        Task Ended { get; }
        void Cut();
    }

    /// <summary>The socket of the library.</summary>
    internal sealed class LibrarySocket : ITestSocket
    {
        private readonly ClientRoomSocket inner = new ClientRoomSocket();

        public Task Ended { get { return inner.Ended; } }

        public void Open(Uri url, string subprotocol)
        {
            inner.Open(url, subprotocol);
        }

        public void Send(byte[] data, bool isText)
        {
            inner.Send(data, isText);
        }

        public bool TryReceive(out SocketMessage message)
        {
            return inner.TryReceive(out message);
        }

        public void Close()
        {
            inner.Close();
        }

        /// <summary>The client only sees that the connection is lost: nobody has called <c>Close</c>.</summary>
        public void Cut()
        {
            inner.Send(new byte[(1 << 20) + 1], false);
        }
    }

    /// <summary>Another socket whose next snapshot can be corrupted.</summary>
    internal sealed class CorruptingSocket : ITestSocket
    {
        private readonly ITestSocket inner;

        internal CorruptingSocket(ITestSocket inner)
        {
            this.inner = inner;
        }

        internal bool CorruptsNext { get; set; }

        public Task Ended { get { return inner.Ended; } }

        public void Open(Uri url, string subprotocol)
        {
            inner.Open(url, subprotocol);
        }

        public void Send(byte[] data, bool isText)
        {
            inner.Send(data, isText);
        }

        public bool TryReceive(out SocketMessage message)
        {
            if (!inner.TryReceive(out message)) return false;
            if (CorruptsNext && message.Kind == SocketMessageKind.Data) CorruptsNext = !(CorruptJson(message.Data) || CorruptProtobuf(message.Data));
            return true;
        }

        public void Close()
        {
            inner.Close();
        }

        public void Cut()
        {
            inner.Cut();
        }

        /// <summary>Another name for the tick.</summary>
        private static bool CorruptJson(byte[] data)
        {
            int at = Encoding.ASCII.GetString(data).IndexOf("\"tick\":", StringComparison.Ordinal);
            if (data[0] != '{' || at < 0) return false;
            data[at + 1] = (byte)'k';
            return true;
        }

        /// <summary>An unknown type for <c>ack</c>, which stands five bytes before <c>avatar</c>.</summary>
        private static bool CorruptProtobuf(byte[] data)
        {
            for (int at = 0; data[0] != '{' && at + 5 < data.Length; at += 1)
            {
                if (data[at] != (1 << 3 | 5) || data[at + 5] != (2 << 3 | 5)) continue;
                data[at] |= 7;
                return true;
            }
            return false;
        }
    }
}
