//! The page: files of `ui/`, which are in the binary. They ask for nothing from elsewhere.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::get;

/// A file, and what it is.
type File = (&'static str, &'static str, &'static str);

const FILES: &[File] = &[
    ("/", "text/html; charset=utf-8", include_str!("../../../../ui/index.html")),
    ("/ui/app.js", SCRIPT, include_str!("../../../../ui/app.js")),
    ("/ui/bench.js", SCRIPT, include_str!("../../../../ui/bench.js")),
    ("/ui/draw.js", SCRIPT, include_str!("../../../../ui/draw.js")),
    ("/ui/functions.js", SCRIPT, include_str!("../../../../ui/functions.js")),
    ("/ui/ip.js", SCRIPT, include_str!("../../../../ui/ip.js")),
    ("/ui/lists.js", SCRIPT, include_str!("../../../../ui/lists.js")),
    ("/ui/live.js", SCRIPT, include_str!("../../../../ui/live.js")),
    ("/ui/ndn.js", SCRIPT, include_str!("../../../../ui/ndn.js")),
    ("/ui/node.js", SCRIPT, include_str!("../../../../ui/node.js")),
    ("/ui/operate.js", SCRIPT, include_str!("../../../../ui/operate.js")),
    ("/ui/views.js", SCRIPT, include_str!("../../../../ui/views.js")),
    ("/ui/style.css", "text/css; charset=utf-8", include_str!("../../../../ui/style.css")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the page may do: run and ask what comes from here, and be within no other page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Adds the paths of the page.
pub(super) fn with_page(router: Router) -> Router {
    FILES.iter().fold(router, |router, &(path, kind, text)| {
        router.route(
            path,
            get(async move || {
                let head = [
                    (CONTENT_TYPE, kind),
                    (CACHE_CONTROL, "no-cache"),
                    (CONTENT_SECURITY_POLICY, POLICY),
                    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
                    (REFERRER_POLICY, "no-referrer"),
                ];
                (head, text).into_response()
            }),
        )
    })
}
