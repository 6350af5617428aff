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
    }

    /// <summary>The only exception that this library throws because of data from outside.</summary>
    public sealed class RoomException : Exception
    {
        public RoomException(RoomErrorKind kind, string message) : base(message)
        {
            Kind = kind;
        }

        public RoomErrorKind Kind { get; }

        internal static RoomException Malformed(string what)
        {
            return new RoomException(RoomErrorKind.Malformed, "the data is malformed: " + what);
        }
    }
}
