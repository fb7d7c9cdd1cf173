#!/bin/busybox sh
# The guest's first program: mounts the host's files, read-only under a layer of memory, and goes on in there.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/mods/$module" || echo "insmod $module failed"; done </mods/order
nine=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o $nine,ro,cache=loose root /ro || poweroff -f
mount -t tmpfs -o size=75% tmpfs /up
mkdir /up/upper /up/work
mount -t overlay -o lowerdir=/ro,upperdir=/up/upper,workdir=/up/work overlay /new || poweroff -f
for dir in proc sys dev; do mount --move /$dir /new/$dir; done
mount -t tmpfs tmpfs /new/run
mkdir -p /new/run/vm
mount -t 9p -o $nine,cache=none control /new/run/vm
exec switch_root /new /bin/bash /run/vm/guest.sh
