//! C#.

use std::fmt::Write as _;

use dunlin_rooms::{FieldType, Integer, Motion};

use crate::{
    Class, Member, Source,
    names::{Names, joined, pascal},
};

pub(crate) const NAMES: Names = Names {
    game: pascal,
    kind: pascal,
    field: pascal,
    has_choices: true,
    reserved: &[
        "Between",
        "Equals",
        "GetHashCode",
        "GetType",
        "KindNumber",
        "Motions",
        "Reader",
        "ToString",
        "TryRead",
    ],
    reserved_kinds: &["Encoding", "Motions", "Reader"],
    second_member: |_| None,
    declared: |kind| vec![kind.to_owned()],
    own_type: |class, member| matches!(member.field.of, FieldType::Choice(_)).then(|| choice_of(class, member)),
};

/// Reads the bytes of a state as `FieldReader` of `dunlin-rooms` does.
const READER: &str = r"
    internal struct Reader
    {
        internal const int Rest = -1;
        private static readonly Encoding Utf8 = new UTF8Encoding(false, true);

        private readonly byte[] state;
        private int at;
        private bool isWrong;
        private bool isCut;
        private bool hasOptional;
        private bool hasValue;

        internal Reader(byte[] state)
        {
            this.state = state;
            at = 0;
            isWrong = isCut = hasOptional = hasValue = false;
        }

        /// <summary>Whether the state has the form of its kind.</summary>
        internal bool IsRight { get { return !isWrong && at == state.Length && (!hasOptional || hasValue); } }

        /// <summary>Before the first optional field: all of them are left out if the state ends here.</summary>
        internal void Optional()
        {
            isCut = at == state.Length;
            hasOptional = !isCut;
        }

        internal long Number(int bytes, long min, long max)
        {
            if (isCut || !Has(bytes)) return 0;
            long value = 0;
            for (int place = 0; place < bytes; place += 1) value |= (long)state[at + place] << 8 * place;
            if (min < 0) value = value << 64 - 8 * bytes >> 64 - 8 * bytes;
            at += bytes;
            isWrong |= value < min || value > max;
            hasValue |= hasOptional && value != 0;
            return isWrong ? 0 : value;
        }

        internal string Text(int min, int max, int lengthBytes)
        {
            int count = Count(min, max, lengthBytes, 1);
            at += count;
            try
            {
                return Utf8.GetString(state, at - count, count);
            }
            catch (DecoderFallbackException)
            {
                isWrong = true;
                return QQ;
            }
        }

        internal long[] List(int bytes, long least, long most, int min, int max, int lengthBytes)
        {
            var list = new long[Count(min, max, lengthBytes, bytes)];
            for (int place = 0; place < list.Length; place += 1) list[place] = Number(bytes, least, most);
            return list;
        }

        private int Count(int min, int max, int lengthBytes, int bytesEach)
        {
            if (isCut) return 0;
            int count = min;
            if (lengthBytes == Rest)
            {
                count = (state.Length - at) / bytesEach;
                isWrong |= (state.Length - at) % bytesEach != 0;
            }
            else if (lengthBytes > 0 && Has(lengthBytes))
            {
                count = state[at] + (lengthBytes == 2 ? state[at + 1] << 8 : 0);
                at += lengthBytes;
            }
            isWrong |= count < min || count > max;
            if (isWrong || !Has(count * bytesEach)) return 0;
            hasValue |= hasOptional && count > 0;
            return count;
        }

        private bool Has(int bytes)
        {
            isWrong |= at + bytes > state.Length;
            return !isWrong;
        }
    }
";

const MOTIONS: &str = r"
    internal static class Motions
    {
        internal static double Linear(double from, double to, double share)
        {
            return from + (to - from) * share;
        }

        /// <summary>The shorter way round; <paramref name=QturnQ/> is the whole way.</summary>
        internal static double Angle(double from, double to, double share, double min, double turn)
        {
            double way = Modulo(to - from, turn);
            return min + Modulo(from + (way > turn / 2 ? way - turn : way) * share - min, turn);
        }

        private static double Modulo(double value, double turn)
        {
            return (value % turn + turn) % turn;
        }
    }
";

pub(crate) fn write(source: &Source<'_>) -> String {
    let mut out = format!("// {}\n\nusing System.Text;\n\nnamespace {}\n{{\n", source.about, source.game);
    let classes = joined(source.classes.iter().map(written), "\n");
    out.push_str(&classes);
    out.push_str(&READER.replace('Q', "\""));
    if source.classes.iter().any(Class::has_motion) {
        out.push_str(&MOTIONS.replace('Q', "\""));
    }
    out.push_str("}\n");
    out
}

fn written(class: &Class<'_>) -> String {
    let mut out = String::new();
    for member in &class.members {
        if let FieldType::Choice(names) = &member.field.of {
            let names = joined(names.iter().map(|name| pascal(name)), ", ");
            let _ = writeln!(out, "    public enum {} : byte {{ {names} }}\n", choice_of(class, member));
        }
    }
    let (name, number) = (&class.name, class.kind.number);
    let _ = writeln!(out, "    public struct {name}\n    {{\n        public const uint KindNumber = {number};");
    for member in &class.members {
        let remark = member.remark();
        if !remark.is_empty() {
            let (first, rest) = remark.split_at(1);
            let _ = writeln!(out, "        /// <summary>{}{rest}.</summary>", first.to_ascii_uppercase());
        }
        let _ = writeln!(out, "        public {} {};", type_of(class, member), member.name);
    }
    let _ = writeln!(out, "\n        /// <summary>False if the state does not have the form of this kind.</summary>");
    let _ = writeln!(out, "        public static bool TryRead(byte[] state, out {name} read)\n        {{");
    let _ = writeln!(out, "            var reader = new Reader(state);\n            read = new {name}();");
    for member in &class.members {
        if member.is_first_optional {
            let _ = writeln!(out, "            reader.Optional();");
        }
        let _ = writeln!(out, "            read.{} = {};", member.name, read(class, member));
    }
    let _ = writeln!(out, "            return reader.IsRight;\n        }}");
    if class.has_motion() {
        write_between(class, &mut out);
    }
    let _ = writeln!(out, "    }}");
    out
}

fn write_between(class: &Class<'_>, out: &mut String) {
    let name = &class.name;
    let _ = writeln!(
        out,
        "\n        /// <summary>What to show between two states: share is 0 at the first, and 1 at the second.</summary>"
    );
    let _ = writeln!(out, "        public static {name} Between({name} from, {name} to, double share)\n        {{");
    let _ = writeln!(out, "            {name} shown = share < 1 ? from : to;");
    for member in &class.members {
        let field = &member.name;
        let _ = match member.field.motion {
            Motion::Step => Ok(()),
            Motion::Linear => {
                writeln!(out, "            shown.{field} = Motions.Linear(from.{field}, to.{field}, share);")
            }
            Motion::Angle => {
                let (min, turn) = (member.min(), member.turn());
                writeln!(
                    out,
                    "            shown.{field} = Motions.Angle(from.{field}, to.{field}, share, {min}, {turn});"
                )
            }
        };
    }
    let _ = writeln!(out, "            return shown;\n        }}");
}

fn choice_of(class: &Class<'_>, member: &Member<'_>) -> String {
    format!("{}{}", class.name, member.name)
}

fn type_of(class: &Class<'_>, member: &Member<'_>) -> String {
    match &member.field.of {
        FieldType::Integer(_) if member.is_fraction() => "double".to_owned(),
        FieldType::Integer(integer) => integer_type(*integer).to_owned(),
        FieldType::Flag => "bool".to_owned(),
        FieldType::Choice(_) => choice_of(class, member),
        FieldType::Object => "uint".to_owned(),
        FieldType::Text { .. } => "string".to_owned(),
        FieldType::List { .. } => "long[]".to_owned(),
    }
}

fn integer_type(integer: Integer) -> &'static str {
    match (integer.bytes, integer.min < 0) {
        (1, false) => "byte",
        (1, true) => "sbyte",
        (2, false) => "ushort",
        (2, true) => "short",
        (_, false) => "uint",
        (_, true) => "int",
    }
}

fn read(class: &Class<'_>, member: &Member<'_>) -> String {
    let integer = member.integer();
    let number = format!("reader.Number({}, {}, {})", integer.bytes, integer.min, integer.max);
    let lengths = member.length_arguments().unwrap_or_default().replace("REST", "Reader.Rest");
    match &member.field.of {
        FieldType::Integer(_) if member.field.per_unit != 1 => format!("{number} / {}.0", member.field.per_unit),
        FieldType::Integer(_) if member.is_fraction() => number,
        FieldType::Integer(_) | FieldType::Object | FieldType::Choice(_) => {
            format!("({}){number}", type_of(class, member))
        }
        FieldType::Flag => format!("{number} == 1"),
        FieldType::Text { .. } => format!("reader.Text({lengths})"),
        FieldType::List { .. } => {
            format!("reader.List({}, {}, {}, {lengths})", integer.bytes, integer.min, integer.max)
        }
    }
}
