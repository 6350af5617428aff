using System;
using System.IO;

namespace Dunlin.Rooms.Tests
{
    /// <summary>
    /// <c>vectors FOLDER</c>: the vectors of schema/vectors/room. <c>recording FILE</c>: snapshots that record_snapshots wrote.
    /// <c>fields FOLDER</c>: schemas and the values of fields, and damaged vectors of them. <c>scripted all</c>: a client against a scripted server.
    /// <c>surface LIBRARY</c>: what the library uses of the platform.
    /// <c>sockets all</c>: the library's socket, closed beside servers that do not close theirs (Mono alone, see <see cref="TcpSocket"/>).
    /// <c>allocations all</c>: what a frame allocates (.NET Core alone).
    /// <c>play URL</c>: a treasure hunt and matchmaking on a server, in each encoding. <c>play-over-tcp URL</c>: the same over a socket of these tests.
    /// </summary>
    internal static class Program
    {
        private static int Main(string[] arguments)
        {
            if (arguments.Length != 2)
            {
                Console.Error.WriteLine("usage: vectors FOLDER | fields FOLDER | recording FILE | "
                    + "scripted all | allocations all | surface LIBRARY | sockets all | play URL | play-over-tcp URL");
                return 2;
            }
            try
            {
                switch (arguments[0])
                {
                    case "vectors": Vectors.Run(arguments[1]); return 0;
                    case "fields": Fields.Run(arguments[1]); return 0;
                    case "recording": Recording.Run(File.ReadAllBytes(arguments[1])); return 0;
                    case "surface": Surface.Run(arguments[1]); return 0;
                    case "scripted": Scripted.Run(); return 0;
                    case "allocations": Allocations.Run(); return 0;
                    case "sockets": SocketEnds.Run(); return 0;
                    case "play": Play.Run(new Uri(arguments[1]), () => new LibrarySocket()); return 0;
                    case "play-over-tcp": Play.Run(new Uri(arguments[1]), () => new TcpSocket()); return 0;
                    default: return 2;
                }
            }
            catch (CheckException error)
            {
                Console.Error.WriteLine("FAILED " + error.Message);
                return 1;
            }
            catch (AggregateException errors)
            {
                foreach (Exception error in errors.InnerExceptions) Console.Error.WriteLine("FAILED " + error);
                return 1;
            }
        }
    }

    internal sealed class CheckException : Exception
    {
        internal CheckException(string message) : base(message)
        {
        }
    }

    internal static class Check
    {
        internal static void Equal(string actual, string expected, string what)
        {
            if (actual != expected) throw new CheckException(what + ":\n" + actual + "\nexpected:\n" + expected);
        }

        internal static void True(bool condition, string what)
        {
            if (!condition) throw new CheckException(what);
        }
    }
}
