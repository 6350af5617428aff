using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;

namespace Dunlin.Rooms.Tests
{
    /// <summary>
    /// What the library uses of the platform: only types of .NET Standard, and members that this runtime has. It runs on .NET Core, whose
    /// <c>netstandard.dll</c> names all types of .NET Standard 2.1.
    /// </summary>
    internal static class Surface
    {
        private const int TypeReferences = 0x01000000;
        private const int MemberReferences = 0x0a000000;

        internal static void Run(string library)
        {
            // Mono's libraries, which this is compiled with, do not have the method.
            MethodInfo forwarded = typeof(Assembly).GetMethod("GetForwardedTypes");
            Check.True(forwarded != null, "`surface` runs on .NET Core");
            var standard = new HashSet<string>(((Type[])forwarded.Invoke(Assembly.Load("netstandard"), null)).Select(type => type.FullName));
            Module module = Assembly.LoadFrom(library).ManifestModule;
            int types = 0;
            foreach (int token in Tokens(TypeReferences, module.ResolveType))
            {
                Type type = module.ResolveType(token);
                Check.True(standard.Contains(type.FullName), type.FullName + " is not in .NET Standard 2.1");
                types += 1;
            }
            int members = Tokens(MemberReferences, module.ResolveMember).Count();
            Check.True(types > 30 && members > 100, types + " types and " + members + " members were found");
            Check.True(!standard.Contains(typeof(Surface).FullName), "a type of this test is in .NET Standard");
            Console.WriteLine("surface: " + types + " types and " + members + " members of the platform are used");
        }

        /// <summary>The tokens of a table; the end of the table is out of range.</summary>
        private static IEnumerable<int> Tokens(int table, Func<int, object> resolve)
        {
            for (int token = table + 1; ; token += 1)
            {
                try
                {
                    resolve(token);
                }
                catch (ArgumentOutOfRangeException)
                {
                    yield break;
                }
                catch (ArgumentException)
                {
                    // A member of a generic type without its arguments: the type was resolved.
                }
                yield return token;
            }
        }
    }
}
