//! The configuration reference, from the schemas of the types, so that the book and the binary say the same.

use super::reload::{Reload, reload_of};
use super::schema::{FunctionSchema, Sections, base};

/// The reference as Markdown: `docs/configuration.md`. The first function is that of a file without `function`.
pub(crate) fn reference(functions: &[FunctionSchema]) -> String {
    let names: Vec<_> = functions.iter().map(|function| format!("`\"{}\"`", function.name)).collect();
    let names = match &names[..] {
        [before @ .., other, last] => [before, &[format!("{other} or {last}")]].concat().join(", "),
        names => names.concat(),
    };
    let mut text = format!(
        "# Configuration reference\n\n\
         Written by `kaido reference` from the code; do not edit.\n\n\
         One TOML file, given with `kaido run -c FILE`. `kaido check -c FILE` reads it without starting\n\
         anything. What is written `[[so]]` is a list of tables; the rest are single tables.\n\n\
         The line `function = NAME`, before all sections, says what the node does: {names}; without it, it is\n\
         the first of them. A list, such as `function = [\"upf\", \"ndn\"]`, has several side by side: each port then names\n\
         the function whose it is, and `[node]` is meant for each. Sections and fields of other functions are refused.\n\n\
         What [kaido reload](reload.md) takes from the file while the node runs has under \"reload\" from when on it holds.\n\n\
         # Every node\n"
    );
    write(&mut text, &base(), &[]);
    for function in functions {
        text.push_str(&format!("\n# {}: `function = \"{}\"`\n", function.title, function.name));
        write(&mut text, &function.own(), std::slice::from_ref(function));
    }
    text
}

fn write(text: &mut String, sections: &Sections, functions: &[FunctionSchema]) {
    for section in sections.iter() {
        let heading =
            if section.is_list { format!("[[{}]]", section.path) } else { format!("[{}]", section.path) };
        text.push_str(&format!("\n## `{heading}`\n\n{}\n", section.meaning));
        if !section.fields.is_empty() {
            text.push_str("\n| field | allowed | default | reload | meaning |\n|---|---|---|---|---|\n");
        }
        for field in &section.fields {
            let (name, allowed, default) = (&field.name, field.allowed(), field.default());
            let reload = match reload_of(functions, &format!("{}.{name}", section.path)) {
                Some(Reload::Changes(when)) => when,
                _ => "no",
            };
            text.push_str(&format!(
                "| `{name}` | {allowed} | {default} | {reload} | {} |\n",
                field.meaning()
            ));
        }
    }
}
