using System;
using System.Diagnostics;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Security.Cryptography;
using System.Text;
using System.Threading;

namespace Dunlin.Rooms.Tests
{
    /// <summary>The library's socket ends, whatever the server does when it is closed.</summary>
    internal static class SocketEnds
    {
        internal static void Run()
        {
            Ends("a server that accepts no WebSocket", false, false);
            Ends("a server that does not answer the close frame", true, false);
            Ends("a server that is gone", true, true);
            Console.WriteLine("socket ends: 3 passed, 0 failed");
        }

        private static void Ends(string what, bool accepts, bool goes)
        {
            var listener = new TcpListener(IPAddress.Loopback, 0);
            listener.Start();
            var socket = new ClientRoomSocket();
            socket.Open(new Uri("ws://127.0.0.1:" + ((IPEndPoint)listener.LocalEndpoint).Port + "/"), "centrifuge-json");
            using (TcpClient server = listener.AcceptTcpClient())
            {
                string request = ReadHead(server.GetStream());
                if (accepts)
                {
                    Accept(server.GetStream(), request);
                    SocketMessage opened = Next(what, socket);
                    Check.True(opened.Kind == SocketMessageKind.Opened, what + ": " + opened.Kind + " " + opened.Reason);
                    socket.Send(Encoding.ASCII.GetBytes("last words"), true);
                }
                if (goes) server.Close();
                socket.Close();
                Until(what, () => socket.Ended.IsCompleted);
                Check.True(!socket.Ended.IsFaulted, what + ": the task failed");
                SocketMessage closed = Next(what, socket);
                Check.True(closed.Kind == SocketMessageKind.Closed, what + ": " + closed.Kind);
                // Masked, so only its length is known: 10 bytes and a head of 6, then a close frame.
                if (accepts && !goes) Check.True(ReadAll(server.GetStream()) >= 16 + 6, what + ": what waited was sent, and the end announced");
            }
            listener.Stop();
        }

        private static SocketMessage Next(string what, ClientRoomSocket socket)
        {
            SocketMessage message = default(SocketMessage);
            Until(what, () => socket.TryReceive(out message));
            return message;
        }

        private static void Until(string what, Func<bool> condition)
        {
            Stopwatch watch = Stopwatch.StartNew();
            while (!condition())
            {
                Check.True(watch.Elapsed.TotalSeconds < 60, "not within 60 s: " + what);
                Thread.Sleep(1); // a frame of a game
            }
        }

        private static string ReadHead(Stream stream)
        {
            var head = new StringBuilder();
            while (!head.ToString().EndsWith("\r\n\r\n")) head.Append((char)stream.ReadByte());
            return head.ToString();
        }

        private static int ReadAll(Stream stream)
        {
            var all = new MemoryStream();
            try
            {
                stream.CopyTo(all);
            }
            catch (IOException)
            {
                // The other side has closed it with something unread.
            }
            return (int)all.Length;
        }

        private static void Accept(Stream stream, string request)
        {
            const string Name = "Sec-WebSocket-Key: ";
            int from = request.IndexOf(Name, StringComparison.OrdinalIgnoreCase) + Name.Length;
            string key = request.Substring(from, request.IndexOf('\r', from) - from);
            byte[] accept;
            using (SHA1 hash = SHA1.Create()) accept = hash.ComputeHash(Encoding.ASCII.GetBytes(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
            byte[] answer = Encoding.ASCII.GetBytes("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + "Sec-WebSocket-Protocol: centrifuge-json\r\nSec-WebSocket-Accept: " + Convert.ToBase64String(accept) + "\r\n\r\n");
            stream.Write(answer, 0, answer.Length);
        }
    }
}
