//! The sections and fields of a file, as the schemas of the configuration's types have them. The reference, the checks and the
//! messages read what they say of a field from here.
//!
//! A field's doc comment is its meaning, its type and attributes are what is allowed, and its default is that of serde. Extensions
//! of the schema say what the type cannot: [`ALLOWED`], [`DEFAULT`], [`MAXIMUM`] and [`VLANS`].

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

use super::Base;
use super::reload::ReloadRule;

/// What is allowed, in words.
const ALLOWED: &str = "x-allowed";
/// What is without the field, in words.
const DEFAULT: &str = "x-default";
/// The largest number, where another field has it.
const MAXIMUM: &str = "x-maximum";
/// Of a field of the base: only functions with VLANs have it.
const VLANS: &str = "x-vlans";

/// What a function has in its files beside the [`Base`].
#[derive(Clone, Copy, Debug)]
pub struct FunctionSchema {
    /// Its name in the file.
    pub name: &'static str,
    /// Its name in the reference.
    pub title: &'static str,
    /// Whether its ports may be VLANs of an interface.
    pub vlans: bool,
    /// The schema of its sections; of sections of the base, of its further fields. See [`schema_of`].
    pub schema: fn() -> Schema,
    /// Which of them a running node can change.
    pub reload: &'static [ReloadRule],
}

impl FunctionSchema {
    /// What only its files have.
    pub fn own(&self) -> Sections {
        let mut own = Sections::of(&(self.schema)());
        if self.vlans {
            for section in &mut own.0 {
                let vlans = whole_base().0.into_iter().find(|base| base.path == section.path);
                let vlans = vlans.map_or(Vec::new(), |base| base.fields);
                section.fields.splice(0..0, vlans.into_iter().filter(Field::is_for_vlans));
            }
        }
        own
    }

    /// What its files have.
    pub fn file(&self) -> Sections {
        let mut sections = base();
        for own in self.own().0 {
            match sections.0.iter_mut().find(|section| section.path == own.path) {
                Some(section) => section.fields.extend(own.fields),
                None => sections.0.push(own),
            }
        }
        sections
    }
}

/// The schema of a part of a file.
pub fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>()
}

/// What the files of all functions have.
pub(super) fn base() -> Sections {
    let mut sections = whole_base();
    sections.0.iter_mut().for_each(|section| section.fields.retain(|field| !field.is_for_vlans()));
    sections
}

fn whole_base() -> Sections {
    Sections::of(&schema_of::<Base>())
}

/// What is allowed at a field or section, by its path.
pub(super) fn allowed(functions: &[FunctionSchema], path: &str) -> Option<String> {
    let of_functions = functions.iter().map(FunctionSchema::own);
    let mut all = std::iter::once(whole_base()).chain(of_functions);
    all.find_map(|sections| {
        let section =
            sections.section(path).map(|section| if section.is_list { "tables" } else { "a table" });
        sections.field(path).map(Field::allowed).or_else(|| section.map(str::to_owned))
    })
}

/// Sections in the order of their types, each before those within it.
#[derive(Debug)]
pub struct Sections(Vec<Section>);

/// A section.
#[derive(Debug)]
pub struct Section {
    /// Its name, after those of the sections that it is in.
    pub path: String,
    /// Whether there may be several.
    pub is_list: bool,
    /// What it is for.
    pub meaning: String,
    /// Its fields, in the order of the type.
    pub fields: Vec<Field>,
}

/// A field.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    schema: Value,
    is_required: bool,
}

impl Sections {
    fn of(schema: &Schema) -> Self {
        let mut sections = Self(Vec::new());
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            sections.add(name, property);
        }
        sections
    }

    /// Adds a section and those within it.
    fn add(&mut self, path: &str, schema: &Value) {
        let Some((is_list, table)) = table(schema) else { return };
        let required = table.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|required| required.iter().any(|known| known == name));
        let properties = || table.get("properties").and_then(Value::as_object).into_iter().flatten();
        let fields = properties().filter(|(_, schema)| self::table(schema).is_none());
        let fields = fields.map(|(name, schema)| Field {
            name: name.clone(),
            schema: schema.clone(),
            is_required: is_required(name),
        });
        let fields = fields.collect();
        self.0.push(Section { path: path.to_owned(), is_list, meaning: meaning(schema), fields });
        for (name, schema) in properties() {
            self.add(&format!("{path}.{name}"), schema);
        }
    }

    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Section> {
        self.0.iter()
    }

    /// The names of the sections at the top of the file.
    pub fn tops(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|section| section.path.as_str()).filter(|path| !path.contains('.'))
    }

    /// The names of fields and sections in a section.
    pub fn names<'s>(&'s self, path: &'s str) -> impl Iterator<Item = &'s str> {
        let within = move |section: &'s Section| {
            let name = section.path.strip_prefix(path)?.strip_prefix('.')?;
            (!name.contains('.')).then_some(name)
        };
        let fields = self.section(path).into_iter().flat_map(|section| &section.fields);
        fields.map(|field| field.name.as_str()).chain(self.iter().filter_map(within))
    }

    fn section(&self, path: &str) -> Option<&Section> {
        self.iter().find(|section| section.path == path)
    }

    /// A field, by its path.
    pub fn field(&self, path: &str) -> Option<&Field> {
        let (section, name) = path.rsplit_once('.')?;
        self.section(section)?.fields.iter().find(|field| field.name == name)
    }
}

/// The table that a schema describes, if it describes one or a list of them; of the latter, `true` with it. A table with fields of
/// any name is a value.
fn table(schema: &Value) -> Option<(bool, &Map<String, Value>)> {
    let as_table = |schema: &'_ Value| schema.get("properties").is_some();
    match schema.get("items") {
        Some(items) if as_table(items) => Some((true, items.as_object()?)),
        _ if as_table(schema) => Some((false, schema.as_object()?)),
        _ => None,
    }
}

/// The doc comment, in one line.
fn meaning(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Field {
    fn is_for_vlans(&self) -> bool {
        self.schema.get(VLANS).is_some()
    }

    /// What it is for.
    pub fn meaning(&self) -> String {
        meaning(&self.schema)
    }

    /// What is allowed.
    pub fn allowed(&self) -> String {
        one_of(&alternatives(&self.schema))
    }

    /// What is without it.
    pub fn default(&self) -> String {
        let words = self.schema.get(DEFAULT).and_then(Value::as_str);
        match (words, self.schema.get("default")) {
            (Some(words), _) => words.to_owned(),
            (None, Some(default)) => written(default),
            (None, None) if self.is_required => "required".to_owned(),
            (None, None) if self.schema.get("items").is_some() => "[]".to_owned(),
            (None, None) => "none".to_owned(),
        }
    }

    /// The least and the largest number that is allowed, beside zero where that is for "none".
    pub fn bounds(&self) -> Option<(u64, u64)> {
        self.bound("minimum").zip(self.bound("maximum"))
    }

    /// The least number that is allowed.
    pub fn lowest(&self) -> Option<u64> {
        self.bound("minimum")
    }

    fn bound(&self, name: &str) -> Option<u64> {
        let alternatives = self.schema.get("anyOf").and_then(Value::as_array);
        let mut all = std::iter::once(&self.schema).chain(alternatives.into_iter().flatten());
        all.find_map(|schema| schema.get(name)?.as_u64())
    }
}

/// What a schema allows, in words.
fn alternatives(schema: &Value) -> Vec<String> {
    if let Some(words) = schema.get(ALLOWED).and_then(Value::as_str) {
        return vec![words.to_owned()];
    }
    let list = |name: &str| schema.get(name).and_then(Value::as_array);
    if let Some(values) = list("enum") {
        return values.iter().filter(|value| !value.is_null()).map(written).collect();
    }
    if let Some(schemas) = list("oneOf").or_else(|| list("anyOf")) {
        return schemas.iter().flat_map(alternatives).collect();
    }
    if let Some(value) = schema.get("const") {
        return vec![written(value)];
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().find(|kind| *kind != "null"),
        kind => kind,
    };
    let range = |low: &str, high: &str| {
        let (low, high) = (schema.get(low)?, schema.get(high)?);
        Some(format!("{low} to {}", high.as_str().map_or_else(|| high.to_string(), str::to_owned)))
    };
    match kind.and_then(Value::as_str) {
        Some("boolean") => vec!["true".to_owned(), "false".to_owned()],
        Some("integer") => {
            let highest = if schema.get(MAXIMUM).is_some() { MAXIMUM } else { "maximum" };
            vec![range("minimum", highest).unwrap_or_else(|| "number".to_owned())]
        }
        Some("string") if schema.get("format").is_some() => vec!["address".to_owned()],
        Some("string") => {
            let characters = range("minLength", "maxLength").map(|range| format!("{range} characters"));
            vec![characters.unwrap_or_else(|| "text".to_owned())]
        }
        Some("array") => {
            let items = schema.get("items").map(alternatives).unwrap_or_default();
            vec![match &items[..] {
                [item] => format!("list of {}", plural(item)),
                items => format!("list of {}", items.join(", ")),
            }]
        }
        Some("object") => vec!["table".to_owned()],
        _ => Vec::new(),
    }
}

fn one_of(words: &[String]) -> String {
    match words {
        [before @ .., other, last] if before.is_empty() && last.contains(' ') => {
            format!("{other}, or {last}")
        }
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

fn plural(word: &str) -> String {
    format!("{word}{}", if word.ends_with(['s', 'x']) { "es" } else { "s" })
}

/// A value as it is written in the file.
fn written(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Array(values) => format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// Of a number of which zero is for "none", whatever its range: `#[schemars(transform = or_zero)]`.
pub fn or_zero(schema: &mut Schema) {
    let mut range = Map::new();
    for name in ["type", "minimum", "maximum"] {
        range.extend(schema.remove(name).map(|value| (name.to_owned(), value)));
    }
    schema.insert("anyOf".to_owned(), serde_json::json!([{ "const": 0 }, range]));
}

#[cfg(test)]
pub(super) mod testing {
    #![expect(dead_code, reason = "for their schemas only")]

    use super::*;

    /// Two functions that there are not.
    pub(in crate::config) const FUNCTIONS: [FunctionSchema; 2] = [
        FunctionSchema {
            name: "lamp",
            title: "Lamp",
            vlans: true,
            schema: schema_of::<LampConfig>,
            reload: &[
                ReloadRule::restart("lamp", "the lamp is lit"),
                ReloadRule::changes("lamp.bulb", "at dusk"),
                ReloadRule::changes("node.strokes", "never"),
            ],
        },
        FunctionSchema {
            name: "horn",
            title: "Horn",
            vlans: false,
            schema: schema_of::<HornConfig>,
            reload: &[
                ReloadRule::restart("horn", "the horn sounds"),
                ReloadRule::restart("node.strokes", "the horn has its reeds"),
            ],
        },
    ];

    #[derive(JsonSchema)]
    struct LampConfig {
        port: Vec<LampPort>,
        /// What is lit.
        lamp: LampTable,
    }

    #[derive(JsonSchema)]
    struct LampPort {
        /// Of its light.
        #[schemars(length(min = 3, max = 8), extend("x-default" = "white"))]
        colour: Option<String>,
    }

    #[derive(JsonSchema)]
    struct LampTable {
        /// Hours
        /// a day.
        #[schemars(range(min = 2, max = 24), transform = or_zero)]
        hours: u8,
        bulb: Bulb,
        shade: Vec<Shade>,
        /// When.
        phase: Option<Phase>,
    }

    #[derive(JsonSchema)]
    struct Bulb {
        /// Power.
        #[schemars(range(min = 5), extend("x-maximum" = "`lamp.hours`", "default" = 7))]
        watts: u32,
    }

    #[derive(JsonSchema)]
    struct Shade {
        sizes: Option<Vec<u32>>,
    }

    #[derive(JsonSchema)]
    #[schemars(rename_all = "snake_case")]
    enum Phase {
        Night,
        Dusk,
    }

    #[derive(JsonSchema)]
    struct HornConfig {
        horn: HornTable,
        node: HornNode,
    }

    #[derive(JsonSchema)]
    struct HornTable {
        mode: RingMode,
    }

    #[derive(JsonSchema)]
    #[schemars(untagged)]
    enum RingMode {
        Always(bool),
        Times(#[schemars(range(min = 2, max = 9))] u16),
    }

    #[derive(JsonSchema)]
    struct HornNode {
        strokes: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::testing::FUNCTIONS;
    use super::*;

    #[test]
    fn fields_are_told_as_their_types_have_them() {
        let [lamp, horn] = FUNCTIONS.map(|function| function.file());
        let told = |sections: &Sections, path: &str| {
            let field = sections.field(path).unwrap();
            (field.allowed(), field.default(), field.meaning())
        };
        let all = |allowed: &str, default: &str, meaning: &str| {
            (allowed.to_owned(), default.to_owned(), meaning.to_owned())
        };
        assert_eq!(told(&lamp, "lamp.hours"), all("0, or 2 to 24", "required", "Hours a day."));
        assert_eq!(told(&lamp, "lamp.bulb.watts"), all("5 to `lamp.hours`", "7", "Power."));
        assert_eq!(told(&lamp, "lamp.shade.sizes"), all("list of numbers", "[]", ""));
        assert_eq!(told(&lamp, "lamp.phase"), all("\"night\" or \"dusk\"", "none", "When."));
        assert_eq!(told(&lamp, "port.colour"), all("3 to 8 characters", "white", "Of its light."));
        assert_eq!(told(&horn, "horn.mode"), all("true, false or 2 to 9", "required", ""));
        assert_eq!(lamp.field("lamp.hours").and_then(Field::bounds), Some((2, 24)));
        let watts = lamp.field("lamp.bulb.watts").unwrap();
        assert_eq!((watts.bounds(), watts.lowest()), (None, Some(5)));
    }

    #[test]
    fn a_file_has_the_fields_of_the_base_and_of_its_function() {
        let [lamp, horn] = FUNCTIONS.map(|function| function.file());
        let names =
            |sections: &Sections, path: &str| sections.names(path).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(&lamp, "lamp"), ["hours", "phase", "bulb", "shade"]);
        let ports = names(&lamp, "port");
        assert_eq!(
            (&*ports[0], &ports[ports.len() - 3..]),
            ("name", &["vlan", "tap", "colour"].map(str::to_owned)[..])
        );
        assert!(!names(&horn, "port").contains(&"vlan".to_owned()));
        assert_eq!(names(&horn, "node").last().map(String::as_str), Some("strokes"));
        assert_eq!(lamp.tops().last(), Some("lamp"));
        assert_eq!(allowed(&FUNCTIONS, "node.workers").as_deref(), Some("1 to 64"));
        assert_eq!(allowed(&FUNCTIONS, "lamp.shade").as_deref(), Some("tables"));
        assert_eq!(allowed(&FUNCTIONS, "lamp.wick"), None);
    }
}
