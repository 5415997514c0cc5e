seen > /mnt/before
status=0
( eval "$CALL" ) > /mnt/stdout 2> /mnt/stderr < /dev/null || status=$?
seen > /mnt/after
cat /mnt/stderr
echo "status $status"
diff /mnt/before /mnt/after | sed -n 's/^> \([^ ]*\).*/changed: \1/p; s/^< \([^ ]*\).*/changed: \1/p' | sort -u
