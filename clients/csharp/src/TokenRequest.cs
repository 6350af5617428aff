using System;
using System.Threading.Tasks;

namespace Dunlin.Rooms
{
    /// <summary>A token that a function of the game gets, on whatever thread; what follows happens in <see cref="Poll"/>.</summary>
    internal sealed class TokenRequest
    {
        private Task<string> asked;
        private Action<string> taken;
        private Action<Exception> failed;

        /// <summary>Asks for a token. An earlier request is forgotten.</summary>
        internal void Begin(Func<Task<string>> getToken, Action<string> onTaken, Action<Exception> onFailed)
        {
            taken = onTaken;
            failed = onFailed;
            try
            {
                asked = getToken() ?? Task.FromException<string>(new InvalidOperationException("the function for tokens returned no task"));
            }
            catch (Exception error)
            {
                // A function may also fail before it gives its task.
                asked = Task.FromException<string>(error);
            }
        }

        internal void Poll()
        {
            if (asked == null || !asked.IsCompleted) return;
            Task<string> done = asked;
            asked = null;
            if (done.Status == TaskStatus.RanToCompletion) taken(done.Result);
            else failed(done.Exception == null ? new OperationCanceledException() : done.Exception.InnerException);
        }

        internal void Forget()
        {
            asked = null;
        }
    }
}
