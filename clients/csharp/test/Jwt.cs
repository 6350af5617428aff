using System;
using System.Text;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Tokens as a backend makes them. .NET Core 3.1 needs OpenSSL 1.1 for its own hashes.</summary>
    internal static class Jwt
    {
        private const int BlockBytes = 64;

        private static readonly uint[] Start =
        {
            0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
        };

        private static readonly uint[] Constants =
        {
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
            0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
            0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
            0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
            0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
            0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
            0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
        };

        /// <summary>A connection token, or a subscription token for a channel, that expires after this number of seconds.</summary>
        internal static string Of(string secret, string user, int seconds, string channel = null)
        {
            string claims = "{\"sub\":" + JsonValue.Quote(user) + ",\"exp\":" + Seconds(DateTimeOffset.UtcNow.ToUnixTimeMilliseconds() + seconds * 1000L)
                + (channel == null ? "" : ",\"channel\":" + JsonValue.Quote(channel)) + "}";
            string signed = Base64(Encoding.UTF8.GetBytes("{\"alg\":\"HS256\",\"typ\":\"JWT\"}")) + "." + Base64(Encoding.UTF8.GetBytes(claims));
            return signed + "." + Base64(Hmac(Encoding.UTF8.GetBytes(secret), Encoding.UTF8.GetBytes(signed)));
        }

        /// <summary>Seconds with a fraction, so that a token lives as long as the test says.</summary>
        private static string Seconds(long milliseconds)
        {
            return milliseconds / 1000 + "." + (milliseconds % 1000).ToString("D3");
        }

        private static string Base64(byte[] data)
        {
            return Convert.ToBase64String(data).TrimEnd('=').Replace('+', '-').Replace('/', '_');
        }

        private static byte[] Hmac(byte[] key, byte[] message)
        {
            Check.True(key.Length <= BlockBytes, "the key is hashed first if it is longer than a block");
            return Sha256(Joined(Pad(key, 0x5c), Sha256(Joined(Pad(key, 0x36), message))));
        }

        private static byte[] Pad(byte[] key, byte with)
        {
            var pad = new byte[BlockBytes];
            for (int at = 0; at < BlockBytes; at += 1) pad[at] = (byte)(with ^ (at < key.Length ? key[at] : 0));
            return pad;
        }

        private static byte[] Joined(byte[] first, byte[] second)
        {
            var joined = new byte[first.Length + second.Length];
            first.CopyTo(joined, 0);
            second.CopyTo(joined, first.Length);
            return joined;
        }

        /// <summary>FIPS 180-4.</summary>
        internal static byte[] Sha256(byte[] message)
        {
            var hash = (uint[])Start.Clone();
            var padded = new byte[(message.Length + 8) / BlockBytes * BlockBytes + BlockBytes];
            message.CopyTo(padded, 0);
            padded[message.Length] = 0x80;
            for (int at = 0; at < 8; at += 1) padded[padded.Length - 1 - at] = (byte)((ulong)message.Length * 8 >> (8 * at));
            for (int from = 0; from < padded.Length; from += BlockBytes) Compress(hash, padded, from);
            var bytes = new byte[32];
            for (int at = 0; at < 32; at += 1) bytes[at] = (byte)(hash[at / 4] >> (24 - 8 * (at % 4)));
            return bytes;
        }

        private static void Compress(uint[] hash, byte[] data, int from)
        {
            var words = new uint[64];
            for (int at = 0; at < 16; at += 1)
            {
                int first = from + at * 4;
                words[at] = (uint)(data[first] << 24 | data[first + 1] << 16 | data[first + 2] << 8 | data[first + 3]);
            }
            for (int at = 16; at < 64; at += 1)
            {
                uint early = Turned(words[at - 15], 7) ^ Turned(words[at - 15], 18) ^ words[at - 15] >> 3;
                uint late = Turned(words[at - 2], 17) ^ Turned(words[at - 2], 19) ^ words[at - 2] >> 10;
                words[at] = unchecked(words[at - 16] + early + words[at - 7] + late);
            }
            var now = (uint[])hash.Clone();
            for (int at = 0; at < 64; at += 1)
            {
                uint sum = Turned(now[4], 6) ^ Turned(now[4], 11) ^ Turned(now[4], 25);
                uint chosen = now[4] & now[5] ^ ~now[4] & now[6];
                uint first = unchecked(now[7] + sum + chosen + Constants[at] + words[at]);
                uint second = Turned(now[0], 2) ^ Turned(now[0], 13) ^ Turned(now[0], 22);
                uint major = now[0] & now[1] ^ now[0] & now[2] ^ now[1] & now[2];
                Array.Copy(now, 0, now, 1, 7);
                now[4] = unchecked(now[4] + first);
                now[0] = unchecked(first + second + major);
            }
            for (int at = 0; at < 8; at += 1) hash[at] = unchecked(hash[at] + now[at]);
        }

        private static uint Turned(uint word, int bits)
        {
            return word >> bits | word << (32 - bits);
        }
    }
}
