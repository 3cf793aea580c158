#!/usr/bin/env bash
# Builds the documentation site in var/site. A link or an anchor that leads nowhere, a page that
# is not in the navigation, or a list or table that is shown as text is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
python=$(scripts/python.sh docs/requirements.txt)
NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --strict --site-dir "$PWD/var/site"
say "docs: $(find var/site -name '*.html' | wc -l) pages in var/site"
