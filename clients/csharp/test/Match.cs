using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Two users get a room by matchmaking on a real server, with tokens that expire after twelve seconds.</summary>
    internal static class Match
    {
        /// <summary>At this number of tokens, a connection and a subscription have been refreshed once. The test waits for one more.</summary>
        private const int TokensUsed = 2;

        internal static void Run(Uri url, Func<RoomClientOptions> options)
        {
            var ada = new Guest(url, options(), "ada-" + Guid.NewGuid());
            var ben = new Guest(url, options(), "ben-" + Guid.NewGuid());
            var all = new[] { ada, ben };
            Until(all, "both are connected and see the lobby", () => all.All(guest => guest.IsReady));
            // On a slow machine, the first token may expire before it is used.
            foreach (Guest guest in all) guest.Faults.Clear();
            Refusals(ada, all);
            // Other plays run on the same server.
            string asked = "{\"namespace\":\"duel\",\"criteria\":{\"table\":\"" + Guid.NewGuid() + "\"}}";
            var tickets = all.Select(guest => guest.Client.Call("dunlin.match", asked)).ToArray();
            Until(all, "the tickets", () => tickets.All(ticket => ticket.IsCompleted));
            Until(all, "the news of a room", () => all.All(guest => guest.Placed != null));
            Check.Equal(ada.Placed["ticket"].Text, tickets[0].Result["ticket"].Text, "the ticket in the user's own channel");
            Check.Equal(ada.Placed["channel"].Text, ben.Placed["channel"].Text, "one room for both");
            string channel = ada.Placed["channel"].Text;
            foreach (Guest guest in all) guest.Join(channel);
            Until(all, "both play", () => all.All(guest => guest.Room.Replica.Object(guest.Room.Replica.Avatar) != null));
            Until(all, "the lobby lists both", () => all.All(guest => guest.Listed.ContainsKey(channel) && guest.Listed[channel] == 2));
            JsonValue status = Answer(all, ada.Client.Call("dunlin.match_status", "{\"ticket\":" + JsonValue.Quote(ada.Placed["ticket"].Text) + "}"));
            Check.Equal(status["channel"].Text, channel, "the room of the ticket");
            // Without refreshes, the server would have ended both by now (tests/clients/server.json).
            Until(all, "tokens were replaced", () => all.All(guest => guest.Tokens > TokensUsed && guest.LobbyTokens > TokensUsed));
            Check.True(all.All(guest => guest.Faults.Count == 0), string.Join("; ", all.SelectMany(guest => guest.Faults)));
            foreach (Guest guest in all) guest.Client.Dispose();
            Until(all, "the connections have ended", () => all.All(guest => guest.Socket.Ended.IsCompleted));
            Console.WriteLine("match, " + ada.Client.Encoding + ": passed");
        }

        private static void Refusals(Guest ada, Guest[] all)
        {
            foreach (string refusal in new[] { "404 dunlin.match_status {\"namespace\":\"duel\"}", "108 dunlin.match {}", "104 dunlin.other {}" })
            {
                string[] parts = refusal.Split(' ');
                Task<JsonValue> call = ada.Client.Call(parts[1], parts[2]);
                Until(all, "the reply to " + refusal, () => call.IsCompleted);
                var error = call.Exception == null ? null : (RoomException)call.Exception.InnerException;
                Check.True(error != null && error.Kind == RoomErrorKind.Refused && error.Code == int.Parse(parts[0]), refusal + ": " + error);
            }
        }

        private static JsonValue Answer(Guest[] all, Task<JsonValue> call)
        {
            Until(all, "a reply", () => call.IsCompleted);
            return call.Result;
        }

        private static void Until(Guest[] guests, string what, Func<bool> condition)
        {
            Play.Until(guests.Select(guest => guest.Client), what, condition);
        }
    }

    /// <summary>A user with tokens, its own channel, and the lobby.</summary>
    internal sealed class Guest
    {
        private const int TokenSeconds = 12;
        private static readonly string Secret = Environment.GetEnvironmentVariable("DUNLIN_HMAC_SECRET");

        private readonly Subscription own;
        private readonly Subscription lobby;

        internal Guest(Uri url, RoomClientOptions options, string user)
        {
            Func<IRoomSocket> newSocket = options.NewSocket;
            options.NewSocket = () => Socket = (ITestSocket)newSocket();
            options.GetToken = () => Task.Run(() =>
            {
                Tokens += 1;
                return Jwt.Of(Secret, user, TokenSeconds);
            });
            Client = new RoomClient(url, options);
            own = Client.Subscription("user:#" + user);
            own.Received += (document, offset) =>
            {
                if (document["match"]["status"].Text == "placed") Placed = document["match"];
            };
            lobby = Client.Subscription("lobby:duel", new SubscriptionOptions
            {
                GetToken = channel => Task.Run(() =>
                {
                    LobbyTokens += 1;
                    return Jwt.Of(Secret, user, TokenSeconds, channel);
                }),
            });
            lobby.Received += (document, offset) =>
            {
                if (document["players"] != null) Listed[document["room"].Text] = (int)document["players"].Number;
            };
            foreach (Subscription one in new[] { own, lobby })
            {
                one.Unsubscribed += (code, reason, again) => Fault(one.Channel + ": " + code + " " + reason);
                one.Failed += error => Fault(one.Channel + ": " + error.Message);
                one.Subscribe();
            }
            Client.Disconnected += (code, reason, again) => Fault("the connection: " + code + " " + reason);
            Client.Failed += error => Fault("the connection: " + error.Message);
            Client.Connect();
        }

        internal RoomClient Client { get; }
        internal ITestSocket Socket { get; private set; }
        internal Room Room { get; private set; }
        internal int Tokens { get; private set; }
        internal int LobbyTokens { get; private set; }
        internal JsonValue Placed { get; private set; }
        internal Dictionary<string, int> Listed { get; } = new Dictionary<string, int>();
        internal List<string> Faults { get; } = new List<string>();
        internal bool IsReady { get { return own.State == SubscriptionState.Subscribed && lobby.State == SubscriptionState.Subscribed; } }

        internal void Join(string channel)
        {
            Room = Client.Room(channel);
            Room.Failed += error => Fault(channel + ": " + error.Message);
            Room.Join();
        }

        private void Fault(string what)
        {
            Faults.Add(what);
        }
    }
}
