# Writes a C++ source that holds files as texts: what page_files.hpp declares.
# cmake -DFOLDER=folder -DFILES=page.css,page.js -DOUT=page_files.cpp -P embed.cmake
string(REPLACE "," ";" names "${FILES}")
set(code "// Made by reports/page/embed.cmake.\n#include \"reports/page_files.hpp\"\n\nnamespace shardline {\n\n")
string(APPEND code "std::span<const PageFile> page_files() {\n  static constexpr PageFile kFiles[] = {\n")
foreach(name IN LISTS names)
  file(READ "${FOLDER}/${name}" text)
  if(text MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${name} holds what ends a raw string here")
  endif()
  string(APPEND code "{\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
string(APPEND code "  };\n  return kFiles;\n}\n\n}  // namespace shardline\n")
file(WRITE "${OUT}" "${code}")
