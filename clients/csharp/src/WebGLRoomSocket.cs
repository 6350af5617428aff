#if UNITY_WEBGL && !UNITY_EDITOR
using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>The WebSocket of the browser, for Unity's WebGL player. <c>DunlinSocket.jslib</c> has the other half.</summary>
    public sealed class WebGLRoomSocket : IRoomSocket
    {
        /// <summary>No socket has this number.</summary>
        private const int None = 0;

        private int id = None;

        public void Open(Uri url, string subprotocol)
        {
            id = DunlinSocketOpen(url.AbsoluteUri, subprotocol);
        }

        public void Send(byte[] data, bool isText)
        {
            if (id != None) DunlinSocketSend(id, data, data.Length, isText ? 1 : 0);
        }

        public bool TryReceive(out SocketMessage message)
        {
            message = default(SocketMessage);
            int kind = id == None ? 0 : DunlinSocketNext(id);
            if (kind == 0) return false;
            var data = new byte[DunlinSocketBytes(id)];
            int code = DunlinSocketTake(id, data);
            switch (kind)
            {
                case 1: message.Kind = SocketMessageKind.Opened; break;
                case 2: message = new SocketMessage { Kind = SocketMessageKind.Data, Data = data }; break;
                default: message = new SocketMessage { Kind = SocketMessageKind.Closed, Code = code, Reason = Encoding.UTF8.GetString(data) }; break;
            }
            return true;
        }

        public void Close()
        {
            if (id != None) DunlinSocketClose(id);
            id = None;
        }

        [DllImport("__Internal")]
        private static extern int DunlinSocketOpen(string url, string subprotocol);

        [DllImport("__Internal")]
        private static extern int DunlinSocketNext(int id);

        [DllImport("__Internal")]
        private static extern int DunlinSocketBytes(int id);

        [DllImport("__Internal")]
        private static extern int DunlinSocketTake(int id, [Out] byte[] data);

        [DllImport("__Internal")]
        private static extern void DunlinSocketSend(int id, byte[] data, int length, int isText);

        [DllImport("__Internal")]
        private static extern void DunlinSocketClose(int id);
    }
}
#endif
