#!/bin/sh
# Install the system packages that some tests need: a browser, the sandbox's tools and a database server.
# Where that is not possible those tests are skipped, each with a sentence.
set -u
packages="chromium bubblewrap libseccomp2 fonts-dejavu-core postgresql"
missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "Some tests need$missing; this system has no apt, so they are skipped unless you install these yourself."
    exit 0
fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo="sudo -n"
    else
        echo "Some tests need$missing; without root they are skipped. Install them with: sudo apt-get install$missing"
        exit 0
    fi
fi
echo "Installing$missing for the tests."
$sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null || {
    echo "Could not install$missing; the tests that need them are skipped."
}
exit 0
