using System;

namespace Dunlin.Rooms
{
    /// <summary>The kinds of errors in data from a room or a caller.</summary>
    public enum RoomErrorKind
    {
        /// <summary>The bytes or the object do not have the format.</summary>
        Malformed,
        /// <summary>The snapshot's base is a tick that the replica does not show.</summary>
        WrongBase,
        /// <summary>The snapshot is about a cell outside the map or the view.</summary>
        WrongCell,
        /// <summary>The snapshot holds more than may be kept.</summary>
        TooLarge,
        /// <summary>An input was sent while the room was not joined.</summary>
        NotJoined,
        /// <summary>There is no connection, or it was lost before the reply.</summary>
        NotConnected,
        /// <summary>The server refused a command: <see cref="RoomException.Code"/> says why.</summary>
        Refused,
        /// <summary>The server did not reply in time.</summary>
        TimedOut,
    }

    /// <summary>The only exception that this library throws because of data from outside.</summary>
    public sealed class RoomException : Exception
    {
        public RoomException(RoomErrorKind kind, string message) : base(message)
        {
            Kind = kind;
        }

        public RoomErrorKind Kind { get; }
        /// <summary>The code of the server's error, with <see cref="RoomErrorKind.Refused"/>; otherwise 0.</summary>
        public int Code { get; private set; }
        /// <summary>Whether the same may succeed later.</summary>
        public bool IsTemporary { get; private set; }

        internal static RoomException Refused(string what, Ending error)
        {
            string message = what + ": " + error.Reason + " (" + error.Code + ")";
            return new RoomException(RoomErrorKind.Refused, message) { Code = (int)error.Code, IsTemporary = error.MayBeRetried };
        }

        internal static RoomException Malformed(string what)
        {
            return new RoomException(RoomErrorKind.Malformed, "the data is malformed: " + what);
        }
    }
}
