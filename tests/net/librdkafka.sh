#!/bin/sh
# Builds librdkafka's own tests, which tests/net/test_other_projects.py runs where OFFSETLOG_LIBRDKAFKA names the folder.
#
#     tests/net/librdkafka.sh FOLDER
#     OFFSETLOG_LIBRDKAFKA=FOLDER .venv/bin/python -m pytest -s tests/net/test_other_projects.py -k librdkafka
#
# No package of its clients has them, but the crate rdkafka-sys brings along all of librdkafka's sources. Needs cargo, make, gcc, g++ and zlib's
# headers; takes some minutes. TLS, SASL and codecs of others are left out: the tests of consuming, offsets and groups need none.
set -eu

crate=rdkafka-sys
version=4.10.0 # librdkafka 2.12.1
checksum=e234cf318915c1059d4921ef7f75616b5219b10b46e9f3a511a15eb4b56a3f77

[ $# = 1 ] || { sed -n 's/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ ! -e "$1" ] || { echo "$1 is there already" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
: >"$work/src/lib.rs"
printf '[package]\nname = "sources"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n' $crate $version >"$work/Cargo.toml"
(cd "$work" && cargo vendor --quiet >/dev/null)
grep -q "^checksum = \"$checksum\"" "$work/Cargo.lock" || { echo "$crate $version has another checksum" >&2; exit 1; }

cp -R "$work/vendor/$crate/librdkafka" "$1"
cd "$1"
chmod -R u+w .
./configure --disable-sasl --disable-ssl --disable-curl --disable-zstd --disable-lz4-ext
# Static libraries, so that the program runs without a path to them.
make -C src librdkafka.a
make -C src-cpp librdkafka++.a
make -C tests test-runner
