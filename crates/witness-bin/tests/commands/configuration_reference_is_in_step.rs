//! docs/configuration.md contains the reference exactly as the program generates it from its keys.

use witness_bin::config::reference;

#[test]
fn the_documentation_holds_the_reference_of_the_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let documentation = std::fs::read_to_string(path).expect("docs/configuration.md");
    let begin = "<!-- reference: made by `witness config reference` -->\n\n";
    let end = "<!-- end of reference -->";
    let (_, rest) = documentation
        .split_once(begin)
        .expect("the reference begins");
    let (documented, _) = rest.split_once(end).expect("the reference ends");
    for (line, (documented, made)) in documented.lines().zip(reference().lines()).enumerate() {
        assert_eq!(
            documented,
            made,
            "line {} of the reference is out of date",
            line + 1
        );
    }
    assert_eq!(
        documented,
        reference(),
        "print it again with `witness config reference`"
    );
}
